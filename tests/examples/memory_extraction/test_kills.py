"""Workers that are killed, as processes of their own."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest

from examples.memory_extraction.batch import recover_stale
from examples.memory_extraction.extraction import MemoryExtraction

from .conftest import TEA_MEMORIES, Endpoint, ask, opened, texts

ROOT = Path(__file__).parents[3]


class Workers:
    """Starts `python -m examples.memory_extraction worker` with an extractor that the test holds in its hands."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint, self.processes = endpoint, list[subprocess.Popen[bytes]]()

    def start(self, url: str, *options: str) -> subprocess.Popen[bytes]:
        environment = os.environ | {
            "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}",
            "WINDLASS_URL": url,
            "MEMORY_EXTRACTOR_URL": self.endpoint.url,
            "MEMORY_EXTRACTOR_MODEL": "stub",
        }
        command = [sys.executable, "-m", "examples.memory_extraction", "worker", *options]
        process = subprocess.Popen(command, cwd=ROOT, env=environment)
        self.processes.append(process)
        return process

    def kill_in_mid_extraction(self, url: str) -> None:
        self.endpoint.go_on.clear()
        victim = self.start(url)
        self.endpoint.asked.get(timeout=30)
        self.kill(victim)
        self.endpoint.go_on.set()

    def kill(self, victim: subprocess.Popen[bytes]) -> None:
        victim.kill()
        assert victim.wait(10) == -9


@pytest.fixture
def workers(endpoint: Endpoint) -> Iterator[Workers]:
    workers = Workers(endpoint)
    yield workers
    for process in workers.processes:
        if process.poll() is None:
            process.kill()
            process.wait(10)


async def recover(memory: MemoryExtraction) -> int:
    """Its lease would tell in a minute; its backoff, after that."""
    count = await recover_stale(memory.app, datetime.now(UTC) + timedelta(minutes=1))
    for job in await memory.app.alist(state="pending"):
        await memory.app.arun_now(job.id)
    return count


async def test_killed_in_mid_extraction_the_memories_are_there_once(memory: MemoryExtraction, workers: Workers) -> None:
    """Kill -9 while the extractor thinks; the job is given back, and the next worker does it."""
    url = memory.settings.url
    job = await ask(memory, "acme", "request-1")
    await asyncio.to_thread(workers.kill_in_mid_extraction, url)
    assert ((await job.arefresh()).state, await texts(memory, "acme")) == ("running", [])

    assert await recover(memory) == 1
    successor = workers.start(url, "--until-idle")
    assert await asyncio.to_thread(successor.wait, 30) == 0
    done = await job.arefresh()
    assert (done.state, done.attempt) == ("completed", 2)
    assert await texts(memory, "acme") == TEA_MEMORIES


async def test_killed_between_its_writes_and_their_commit(fresh_postgres_url: str, workers: Workers) -> None:
    """The memories are written and the completion waits for a lock of ours, when the worker is killed."""

    def until(condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 30
        while not condition():
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def kill_in_the_transaction() -> None:
        with psycopg.connect(fresh_postgres_url, autocommit=True) as looking:
            workers.endpoint.go_on.clear()
            victim = workers.start(fresh_postgres_url)
            workers.endpoint.asked.get(timeout=30)
            with psycopg.connect(fresh_postgres_url) as holding:
                holding.execute("SELECT FROM windlass_jobs FOR UPDATE")
                workers.endpoint.go_on.set()
                until(lambda: bool(looking.execute(WRITTEN_AND_WAITING).fetchone()))
                workers.kill(victim)
            until(lambda: not looking.execute(WRITING).fetchone())

    async with opened(fresh_postgres_url) as memory:
        job = await ask(memory, "acme", "request-1")
        await asyncio.to_thread(kill_in_the_transaction)
        assert ((await job.arefresh()).state, await texts(memory, "acme")) == ("running", [])
        assert await recover(memory) == 1
        successor = workers.start(fresh_postgres_url, "--until-idle")
        assert await asyncio.to_thread(successor.wait, 30) == 0
        assert ((await job.arefresh()).state, await texts(memory, "acme")) == ("completed", TEA_MEMORIES)


WRITING = """
SELECT pid FROM pg_locks WHERE relation = 'memories'::regclass AND mode = 'RowExclusiveLock' AND granted
"""
WRITTEN_AND_WAITING = f"{WRITING} AND pid IN (SELECT pid FROM pg_locks WHERE NOT granted)"

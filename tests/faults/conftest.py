"""Crews of workers to do harm to, on each store, and the evidence afterwards."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import psycopg
import pytest
from pymongo import MongoClient

from windlass import Job, Windlass
from windlass.stores.mongodb.connections import HANDLE

from . import program
from .checker import Violation, check
from .history import Event, Final, History

ROOT = Path(__file__).parents[2]
RESCUE_SECONDS = 0.3
SLACK_SECONDS = 15.0  # for a machine that has other things to do


class Crew:
    """Workers in processes of their own, which can be killed; a client that notes what it sends; a watch."""

    def __init__(self, url: str, folder: Path, seed: int, environment: dict[str, str] | None = None) -> None:
        self.url, self.seed, self.random = url, seed, random.Random(seed)
        self.history = History(folder / "history")
        self.app = Windlass(url)
        self.app.migrate()
        self.app.tasks.update(program.app.tasks)
        self.environment = os.environ | {"WINDLASS_URL": url} | (environment or {})
        self.supervisor: subprocess.Popen[bytes] | None = None
        self.pids: list[int] = []
        self.deaths = 0
        self._maker = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.program", str(self.history.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=self.environment,
        )

    # Workers

    def start(self, count: int = 1, **options: Any) -> None:
        assert self._maker.stdin is not None
        assert self._maker.stdout is not None
        given = {"concurrency": 8, "rescue_interval": RESCUE_SECONDS, "poll_interval": 0.5} | options
        for _ in range(count):
            self._maker.stdin.write(msgspec.json.encode(given).decode() + "\n")
            self._maker.stdin.flush()
            self.pids.append(int(self._maker.stdout.readline()))

    def supervise(self, *options: str) -> subprocess.Popen[bytes]:
        """`windlass worker` as people start it, on the same handlers."""
        command = [sys.executable, "-m", "windlass", "worker", "tests.faults.program:app", *options]
        environment = self.environment | {"HISTORY": str(self.history.path)}
        self.supervisor = subprocess.Popen([*command, "--rescue-interval", "300ms"], cwd=ROOT, env=environment)
        return self.supervisor

    def living(self) -> list[int]:
        return [pid for pid in self.pids if Path(f"/proc/{pid}").exists()]

    def kill(self, count: int) -> None:
        living = self.living()
        for pid in self.random.sample(living, min(count, len(living))):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                self.deaths += 1
            self.pids.remove(pid)

    def replace_dead(self, **options: Any) -> None:
        """Those whom a handler has killed."""
        alive = self.living()
        gone = len(self.pids) - len(alive)
        self.pids, self.deaths = alive, self.deaths + gone
        self.start(gone, **options)

    # The client

    def send(self, calls: list[tuple[str, dict[str, Any]]]) -> list[Job]:
        made = [self.app.call(name, given, id=program.app.make_id()) for name, given in calls]
        ids = [call.options.id for call in made]
        self.history.note(*(Event(kind="sent", id=UUID(str(id))) for id in ids))
        jobs = self.app.enqueue_many(made)
        self.history.note(*(Event(kind="acknowledged", id=job.id) for job in jobs))
        return jobs

    # Watching

    def look(self) -> None:
        """Note what runs although its lease and two rounds of rescue are over (a round is up to half as
        long again, and half of one passes until the living have renewed)."""
        patience = timedelta(seconds=2 * (1.5 + 0.5) * RESCUE_SECONDS + SLACK_SECONDS)
        running = self.app.list(state="running", limit=1000)
        now = datetime.now(UTC)
        late = [job for job in running if job.lease_expires_at and job.lease_expires_at + patience < now]
        self.history.note(*(Event(kind="overdue", id=job.id) for job in late))

    def until(self, condition: Callable[[], object], seconds: float = 60.0) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, f"it did not happen in time: {self.app.counts()}; seed {self.seed}"
            time.sleep(0.1)

    def has_started_since(self, moment: float) -> bool:
        return any(event.kind == "started" and event.at > moment for event in self.history.read())

    def drained(self) -> bool:
        self.look()
        counts = self.app.counts()
        return not (counts.pending or counts.running)

    # The evidence

    def violations(self) -> list[Violation]:
        # A worker that was killed between its settlement and its count has left the count to upkeep: at its own time.
        self.app.store.clock.move(timedelta(minutes=10))
        self.app.prune()
        self.app.store.clock.move(-timedelta(minutes=10))
        return check(self.history.read(), finals(self.url), self.app.counts().completed)

    def close(self) -> None:
        assert self._maker.stdin is not None
        assert self._maker.stdout is not None
        for pid in self.pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if self.supervisor is not None and self.supervisor.poll() is None:
            self.supervisor.terminate()
            self.supervisor.wait(30)
        self._maker.stdin.close()
        self._maker.wait(20)
        self._maker.stdout.close()
        self.history.close()
        self.app.close()


def finals(url: str) -> list[Final]:
    """All jobs as they are, live or not, with the token that only the store knows."""
    columns = ("id", "state", "attempt", "max_attempts", "token")
    rows: list[Any] = []
    if url.startswith("mongodb"):
        client: MongoClient[Any] = MongoClient(url)
        with client:
            jobs = client.get_default_database().get_collection("windlass_jobs", **HANDLE)
            rows = [(row["_id"], *(row.get(name) for name in columns[1:])) for row in jobs.find({})]
    elif url.startswith("postgresql"):
        with psycopg.connect(url) as connection:
            for table in ("jobs", "history"):
                rows += connection.execute(f"SELECT {', '.join(columns)} FROM windlass_{table}").fetchall()
    else:
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as file:
            for table in ("jobs", "history"):
                rows += file.execute(f"SELECT {', '.join(columns)} FROM windlass_{table}").fetchall()
    return [
        Final(id=UUID(str(id)), state=state, attempt=attempt, max_attempts=most, token=token and UUID(str(token)))
        for id, state, attempt, most, token in rows
    ]


@pytest.fixture
def crew(store_url: str, tmp_path: Path) -> Iterator[Crew]:
    seed = int(os.environ.get("WINDLASS_TEST_SEED", random.randrange(2**32)))
    print(f"replay with WINDLASS_TEST_SEED={seed}")
    crew = Crew(store_url, tmp_path, seed)
    yield crew
    crew.close()

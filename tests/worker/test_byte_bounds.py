"""What a worker holds and sends is bounded in bytes, whatever the bytes are."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from windlass import Attempt, Continue, Windlass
from windlass.operation import Operation
from windlass.outcome import Settlement
from windlass.stores.store import Refusal
from windlass.worker import starting
from windlass.worker.outbox import MOST_BYTES

from .conftest import until

ROOT = Path(__file__).parents[2]
MEGABYTE = 1024 * 1024


def watch(app: Windlass) -> list[int]:
    """How many bytes each batch of settlements has."""
    settle, sizes = app.store.settle, []

    def watched(settlements: Sequence[Settlement]) -> Operation[list[Refusal]]:
        parts = [(one.output, one.progress, one.continues and one.continues.input) for one in settlements]
        sizes.append(sum(len(text or "") for part in parts for text in part))
        return settle(settlements)

    app.store.settle = watched  # type: ignore[method-assign]
    return sizes


async def test_what_a_chain_continues_with_counts_in_a_batch(app: Windlass) -> None:
    ready = asyncio.Event()

    @app.task
    async def first(attempt: Attempt) -> Any:
        await ready.wait()
        return Continue(second.call("x" * 500_000))

    @app.task
    async def second(text: str) -> None: ...

    sizes = watch(app)
    await app.aenqueue_many([first.call() for _ in range(40)])
    async with app.worker(concurrency=40) as worker:
        await until(lambda: len(worker.running) == 40)
        ready.set()
        await until(lambda: worker.completed == 80, 60)
    assert sum(sizes) > 40 * 500_000
    assert max(sizes) <= MOST_BYTES


async def test_what_handlers_have_said_counts_in_a_batch(app: Windlass) -> None:
    ready = asyncio.Event()

    @app.task
    async def work(attempt: Attempt) -> None:
        for _ in range(100):
            attempt.log("x" * 1000)
        await ready.wait()

    sizes = watch(app)
    await app.aenqueue_many([work.call() for _ in range(150)])
    async with app.worker(concurrency=150) as worker:
        await until(lambda: len(worker.running) == 150)
        ready.set()
        await until(lambda: worker.completed == 150, 60)
    assert sum(sizes) > 150 * 100_000
    assert max(sizes) <= MOST_BYTES


def test_what_jobs_have_waited_for_is_read_when_they_start_and_bounded(app: Windlass, store_url: str) -> None:
    """30 jobs, each of which waited for ten results of a megabyte: 300 MB in all."""
    for what in ("make", "run"):
        done = subprocess.run(
            [sys.executable, "-m", "tests.worker.fan_in", what], cwd=ROOT, env=os.environ | {"WINDLASS_URL": store_url},
            capture_output=True, text=True, timeout=300,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    completed, grown = map(int, done.stdout.split())
    assert completed == 30
    assert grown < 220 * MEGABYTE, f"{grown / MEGABYTE:.0f} MB more than before"


async def test_each_attempt_that_waits_for_room_can_be_cancelled(
    app: Windlass, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One attempt holds as many bytes as a worker may. The next waits for room, and others wait behind it."""
    monkeypatch.setattr(starting, "MOST_BYTES", 10)
    release, ran = asyncio.Event(), list[int]()

    @app.task
    async def part() -> str:
        return "x" * 100

    @app.task
    async def joined(attempt: Attempt, number: int) -> None:
        ran.append(number)
        await release.wait()

    done = await part.aenqueue()
    await app.arun_worker(until_idle=True)
    jobs = [await joined.using(after=[done]).aenqueue(number) for number in range(5)]
    async with app.worker(concurrency=len(jobs)) as worker:
        await until(lambda: ran and len(worker.running) == len(jobs))
        waiting = [job for number, job in enumerate(jobs) if number not in ran]
        for left, job in reversed(list(enumerate(waiting, start=1))):
            await job.acancel()
            await until(lambda: len(worker.running) == left)  # noqa: B023
            assert len(ran) == 1
        release.set()
        last = await joined.using(after=[done]).aenqueue(99)
        await last.aresult(20)
    assert [(await job.arefresh()).state for job in waiting] == ["cancelled"] * 4

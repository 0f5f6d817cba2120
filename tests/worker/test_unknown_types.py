"""Jobs that are due and not for this worker: it does not look at them all the time, and misses nothing beside them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from windlass import Windlass

from .conftest import until

QUEUES = 40


class Looks:
    """How often the worker looked into the store, by operation."""

    def __init__(self, app: Windlass, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        for name in ("claim", "next_due"):
            monkeypatch.setattr(app.store, name, self._counted(getattr(app.store, name)))

    def _counted(self, operation: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any) -> Iterator[Any]:
            self.count += 1
            return operation(*arguments)

        return counted

    async def until_few(self, app: Windlass) -> None:
        """Until there are but a few in half a second."""
        deadline = time.monotonic() + 30
        while True:
            before = self.count
            await asyncio.sleep(0.5)
            if self.count - before <= 5:
                return
            assert time.monotonic() < deadline, f"{self.count - before} looks in half a second"


@pytest.mark.parametrize("named", [False, True])
async def test_an_idle_worker_leaves_them_alone_and_hears_of_others(
    app: Windlass, named: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []

    @app.task
    async def note(text: str) -> None:
        ran.append(text)

    queues = [f"queue {number}" for number in range(QUEUES)]
    await app.aenqueue_many([app.call("unknown", queue=queue) for queue in queues])
    looks = Looks(app, monkeypatch)
    async with app.worker(queues if named else None, poll_interval=600):
        await looks.until_few(app)
        for number in range(3):
            await note.using(queue=queues[7]).aenqueue(f"known {number}")
            await until(lambda number=number: f"known {number}" in ran)  # type: ignore[misc]
        await looks.until_few(app)
    assert app.counts().pending == QUEUES


async def rests(worker: Any, queue: str = "default") -> None:
    """Until the worker leaves the queue alone."""

    def leaves_it_alone() -> bool:
        claimer = getattr(worker, "claimer", None)  # it has one when it has started
        return claimer is not None and queue in claimer.cursors and claimer.cursors[queue].stuck

    await until(leaves_it_alone)


async def test_the_poll_finds_a_job_without_a_hint(app: Windlass) -> None:
    ran: list[str] = []
    app.store.notify = False

    @app.task
    async def note(text: str) -> None:
        ran.append(text)

    await app.aenqueue("unknown")
    async with app.worker(poll_interval=1) as worker:
        await rests(worker)
        await note.aenqueue("known")
        await until(lambda: "known" in ran)


async def test_a_queue_that_rests_is_woken_by_a_hint(app: Windlass) -> None:
    """At once, or when a job falls due of which the hint came before."""
    ran: list[str] = []

    @app.task
    async def note(text: str) -> None:
        ran.append(text)

    await app.aenqueue("unknown")
    async with app.worker(poll_interval=600) as worker:
        await rests(worker)
        await note.aenqueue("now")
        await until(lambda: "now" in ran)
        await rests(worker)
        await note.using(delay=0.3).aenqueue("later")
        await until(lambda: "later" in ran)


async def test_a_queue_that_rests_is_woken_for_a_retry(app: Windlass) -> None:
    """The job was claimed before the queue came to rest, and fails afterwards: no hint tells of that."""
    go_on, runs = asyncio.Event(), []

    @app.task(backoff=0.3)
    async def fails_once() -> None:
        runs.append(1)
        await go_on.wait()
        if len(runs) == 1:
            raise OSError("once")

    await fails_once.aenqueue()
    async with app.worker(poll_interval=600) as worker:
        await until(lambda: worker.running)
        await app.aenqueue("unknown")
        await rests(worker)
        go_on.set()
        await until(lambda: worker.completed == 1)


async def test_a_task_that_is_registered_later_gets_them(app: Windlass) -> None:
    ran: list[str] = []
    await app.aenqueue("note", {"text": "early"})
    async with app.worker(poll_interval=1) as worker:
        await rests(worker)

        @app.task
        async def note(text: str) -> None:
            ran.append(text)

        await until(lambda: app.counts().pending == 0)


async def test_a_paused_queue_continues_when_it_is_resumed(app: Windlass) -> None:
    ran: list[str] = []

    @app.task
    async def note(text: str) -> None:
        ran.append(text)

    await app.apause("default")
    await note.aenqueue("paused")
    async with app.worker(poll_interval=1) as worker:
        await rests(worker)
        assert not ran
        await app.aresume("default")
        await until(lambda: "paused" in ran)

"""Waiting for chains to end: a hint wakes whoever waits, a look now and then is the net."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from .call import check_id
from .duration import Duration, to_seconds
from .errors import InvalidInput, JobCancelled, JobFailed, JobNotFound, WindlassError
from .job import Job
from .lifecycle import CANCELLED, FAILED
from .operation import Operation
from .stores.store import Filter, Store
from .stores.wakeup import Hint

if TYPE_CHECKING:
    from .task import Task

T = TypeVar("T")

FIRST_LOOK, LONGEST_LOOK = 0.25, 2.0  # seconds between looks, however silent it is; hints are quicker
Awaited = Job | UUID | str


class Awaiting:
    """Part of `Windlass`."""

    store: Store
    tasks: dict[str, Task[..., Any]]

    def run_operation(self, make: Callable[[], Operation[T]]) -> T:
        raise NotImplementedError

    async def arun_operation(self, make: Callable[[], Operation[T]]) -> T:
        raise NotImplementedError

    def result(self, job: Awaited, timeout: Duration | None = None) -> Any:
        """Wait until the job's chain has ended; what its last job returned, typed by its task's signature."""
        return self.results([job], timeout)[0]

    async def aresult(self, job: Awaited, timeout: Duration | None = None) -> Any:
        return (await self.aresults([job], timeout))[0]

    def results(self, jobs: Sequence[Awaited], timeout: Duration | None = None) -> list[Any]:
        """Wait for many at once: their results, in order. The first that failed or was cancelled raises."""
        _refuse_in_loop()
        waiting = Waiting(self, jobs, timeout)
        if self.run_operation(waiting.look):
            return waiting.results()
        woken = threading.Event()
        deafen = self.store.wakeup.listen(lambda hint: woken.set() if waiting.concerns(hint) else None)
        try:
            self.run_operation(waiting.watch)
            while not self.run_operation(waiting.look):
                woken.wait(waiting.pause())
                woken.clear()
        finally:
            deafen()
        return waiting.results()

    async def aresults(self, jobs: Sequence[Awaited], timeout: Duration | None = None) -> list[Any]:
        waiting = Waiting(self, jobs, timeout)
        if await self.arun_operation(waiting.look):
            return waiting.results()
        loop, woken = asyncio.get_running_loop(), asyncio.Event()

        def listen(hint: Hint | None) -> None:
            if waiting.concerns(hint):
                with suppress(RuntimeError):  # the loop has ended meanwhile
                    loop.call_soon_threadsafe(woken.set)

        deafen = self.store.wakeup.listen(listen)
        try:
            await self.arun_operation(waiting.watch)
            while not await self.arun_operation(waiting.look):
                pause = waiting.pause()
                with suppress(TimeoutError):
                    await asyncio.wait_for(woken.wait(), pause)
                woken.clear()
        finally:
            deafen()
        return waiting.results()


class Waiting:
    """What one caller waits for, and what of it has ended."""

    def __init__(self, app: Awaiting, jobs: Sequence[Awaited], timeout: Duration | None) -> None:
        self.app, self.store = app, app.store
        self.ids = [_id_of(job) for job in jobs]
        self.deadline = None if timeout is None else time.monotonic() + to_seconds(timeout)
        self.chains: dict[UUID, UUID] = {job.id: job.chain_id for job in jobs if isinstance(job, Job)}
        self.ends: dict[UUID, Job] = {}
        self._names: set[str] = set()
        self._pause = FIRST_LOOK

    @property
    def left(self) -> list[UUID]:
        return sorted({chain for id in self.ids if (chain := self.chains[id]) not in self.ends})

    def look(self) -> Operation[bool]:
        """Whether all have ended."""
        unknown = [id for id in self.ids if id not in self.chains]
        if unknown:
            self._learn((yield from self.store.get(unknown)), unknown)
        for job in (yield from self.store.ends(self.left)):
            self.ends[job.chain_id] = job
        if self.left:
            # Whoever is neither running, waiting nor at its end is gone.
            there = yield from self.store.get(self.left)
            live = {job.chain_id for job in there}
            for chain in self.left:
                if chain not in live and not (yield from self.store.list(Filter(chain=chain), 1)):
                    raise JobNotFound(f"there is no job {chain}: it never was, was deleted, or is no longer kept")
        return not self.left

    def _learn(self, found: Sequence[Job], wanted: Sequence[UUID]) -> None:
        self.chains |= {job.id: job.chain_id for job in found}
        for id in wanted:
            if id not in self.chains:
                raise JobNotFound(f"there is no job {id}: it never was, was deleted, or is no longer kept")

    def watch(self) -> Operation[None]:
        self._names = {str(chain) for chain in self.left}
        yield from self.store.watch(self.left)

    def concerns(self, hint: Hint | None) -> bool:
        return hint is None or (hint.kind == "finished" and hint.name in self._names)

    def pause(self) -> float:
        """How long until the next look, hint or not."""
        pause, self._pause = self._pause, min(self._pause * 1.5, LONGEST_LOOK)
        if self.deadline is None:
            return pause
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError(f"job {self.left[0]} is not finished yet")
        return min(pause, left)

    def results(self) -> list[Any]:
        return [_outcome(self.app, self.ends[self.chains[id]]) for id in self.ids]


def _refuse_in_loop() -> None:
    """A worker in that loop could never finish what is waited for."""
    with suppress(RuntimeError):  # there is none in this thread
        asyncio.get_running_loop()
        raise WindlassError(
            "result() and results() would stop the event loop that runs in this thread: "
            "await aresult() or aresults() instead"
        )


def _id_of(job: Awaited) -> UUID:
    if not isinstance(job, Job):
        return check_id(job)
    if job.policy is not None and job.policy.keep_seconds == 0:
        raise InvalidInput(f"job {job.id} has keep=0: nothing of it is kept, so there is no result to wait for")
    return job.id


def _outcome(app: Awaiting, job: Job) -> Any:
    if job.went_on:
        raise JobNotFound(f"chain {job.chain_id} has gone on from job {job.id}, and what it ended with is not kept")
    if job.state == FAILED:
        raise JobFailed(f"job {job.id} ({job.type}) failed: {job.error}")
    if job.state == CANCELLED:
        raise JobCancelled(f"job {job.id} ({job.type}) was cancelled" + (f": {job.error.message}" if job.error else ""))
    task = app.tasks.get(job.type)
    return task.signature.decode_result(job.output_json or "null") if task else job.output

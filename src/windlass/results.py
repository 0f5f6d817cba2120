"""Wait for results: a hint wakes the caller, and a look from time to time finds an end whose hint was lost."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple
from uuid import UUID

from .call import check_id
from .duration import Delays, Duration, to_seconds
from .engine import Engine
from .errors import InvalidInput, JobCancelled, JobFailed, JobNotFound, WindlassError
from .job import Job, no_job
from .lifecycle import CANCELLED, FAILED
from .operation import Flow, Operation, Runs, transact
from .stores.store import Filter
from .stores.wakeup import Hint

FIRST_LOOK, LONGEST_LOOK = 0.25, 2.0  # seconds between looks without a hint
Awaited = Job | UUID | str


def result(engine: Engine, job: Awaited, timeout: Duration | None = None) -> Flow[Any]:
    """Wait until the job's chain has ended: the return value of its last job, typed by the signature of its task."""
    return (yield from results(engine, [job], timeout))[0]


def results(engine: Engine, jobs: Sequence[Awaited], timeout: Duration | None = None) -> Flow[list[Any]]:
    """Wait for many at once: their results, in order. The first that failed or was cancelled raises."""
    yield BlocksThread()
    waiting = Waiting(engine, jobs, timeout)
    if (yield from transact(waiting.look)):
        return waiting.results()
    alarm = Alarm()
    stop_listening = engine.store.wakeup.listen(lambda hint: alarm.ring() if waiting.concerns(hint) else None)
    try:
        yield from transact(waiting.watch)
        alarm.clear()  # the look that follows sees all that has happened until now
        while not (yield from transact(waiting.look)):
            yield Sleep(alarm, waiting.pause())
    finally:
        stop_listening()
    return waiting.results()


class BlocksThread:
    """A step that refuses to block a thread whose event loop runs: a worker in that loop could never end the job."""

    def run(self, runs: Runs, /) -> None:
        with suppress(RuntimeError):  # no loop runs in this thread
            asyncio.get_running_loop()
            raise WindlassError(
                "result() and results() would stop the event loop that runs in this thread: "
                "await aresult() or aresults() instead"
            )

    async def arun(self, runs: Runs, /) -> None:
        pass


class Alarm:
    """Wakes a caller that sleeps, in a thread or in an event loop. Any thread may ring it."""

    def __init__(self) -> None:
        self._rung = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._woken = asyncio.Event()

    def ring(self) -> None:
        self._rung.set()
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop has ended meanwhile
                self._loop.call_soon_threadsafe(self._woken.set)

    def clear(self) -> None:
        self._rung.clear()
        self._woken.clear()

    def sleep(self, seconds: float) -> None:
        self._rung.wait(seconds)
        self._rung.clear()

    async def asleep(self, seconds: float) -> None:
        self._loop = asyncio.get_running_loop()
        if not self._rung.is_set():  # from here on, a ring reaches the loop
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._woken.wait()
        self.clear()


class Sleep(NamedTuple):
    """A step of a flow: sleep until the alarm rings, at most so long."""

    alarm: Alarm
    seconds: float

    def run(self, runs: Runs, /) -> None:
        self.alarm.sleep(self.seconds)

    async def arun(self, runs: Runs, /) -> None:
        await self.alarm.asleep(self.seconds)


class Waiting:
    """The chains that one caller waits for, and those of them that have ended."""

    def __init__(self, engine: Engine, jobs: Sequence[Awaited], timeout: Duration | None) -> None:
        self.engine, self.store = engine, engine.store
        self.ids = [_id_of(job) for job in jobs]
        self.deadline = None if timeout is None else time.monotonic() + to_seconds(timeout)
        self.chains: dict[UUID, UUID] = {job.id: job.chain_id for job in jobs if isinstance(job, Job)}
        self.ends: dict[UUID, Job] = {}
        self._names: set[str] = set()
        self._pauses = Delays(FIRST_LOOK, LONGEST_LOOK, factor=1.5)

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
            # A chain that has no end and no job any more is gone.
            there = yield from self.store.get(self.left)
            live = {job.chain_id for job in there}
            for chain in self.left:
                if chain not in live and not (yield from self.store.list(Filter(chain=chain), 1)):
                    raise no_job(chain)
        return not self.left

    def _learn(self, found: Sequence[Job], wanted: Sequence[UUID]) -> None:
        self.chains |= {job.id: job.chain_id for job in found}
        for id in wanted:
            if id not in self.chains:
                raise no_job(id)

    def watch(self) -> Operation[None]:
        self._names = {str(chain) for chain in self.left}
        yield from self.store.watch(self.left)

    def concerns(self, hint: Hint | None) -> bool:
        return hint is None or (hint.kind == "finished" and hint.name in self._names)

    def pause(self) -> float:
        """Seconds until the next look without a hint."""
        seconds = next(self._pauses)
        if self.deadline is None:
            return seconds
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError(f"job {self.left[0]} is not finished yet: app.explain(id) says why")
        return min(seconds, left)

    def results(self) -> list[Any]:
        return [_outcome(self.engine, self.ends[self.chains[id]]) for id in self.ids]


def _id_of(job: Awaited) -> UUID:
    if not isinstance(job, Job):
        return check_id(job)
    if job.keep_seconds_raw == 0:
        raise InvalidInput(f"job {job.id} has keep=0: nothing of it is kept, so there is no result to wait for")
    return job.id


def _outcome(engine: Engine, job: Job) -> Any:
    if job.went_on:
        raise JobNotFound(f"chain {job.chain_id} continued after job {job.id}, and its last job is no longer kept")
    if job.state == FAILED:
        raise JobFailed(f"job {job.id} ({job.type}) failed: {job.error}")
    if job.state == CANCELLED:
        raise JobCancelled(f"job {job.id} ({job.type}) was cancelled" + (f": {job.error.message}" if job.error else ""))
    task = engine.tasks.get(job.type)
    return task.signature.decode_result(job.output_json or "null") if task else job.output

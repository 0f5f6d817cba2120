"""Queues, workers, and what keeps a queue in order. Workers do most of it by themselves."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from .call import check_name
from .operation import Operation
from .outcome import Settlement
from .reading import Reading
from .stores.store import WorkerInfo
from .stores.wakeup import Hint
from .twins import twins

AT_ONCE = 500  # jobs in one transaction


class Maintenance(Reading):
    """Part of `Windlass`."""

    def _pause(self, queue: str) -> Operation[None]:
        """Let nothing of this queue be claimed until it is resumed. What runs goes on."""
        yield from self.store.pause(check_name("queue", queue))

    pause, apause = twins(_pause)

    def _resume(self, queue: str) -> Operation[None]:
        yield from self.store.resume(check_name("queue", queue))
        yield from self.store.hint([Hint("ready", queue)])

    resume, aresume = twins(_resume)

    def _paused(self) -> Operation[list[str]]:
        """The names of the paused queues."""
        return (yield from self.store.paused())

    paused, apaused = twins(_paused)

    def _workers(self) -> Operation[list[WorkerInfo]]:
        """The workers that are alive: host, pid, queues, how many jobs they run."""
        return (yield from self.store.workers())

    workers, aworkers = twins(_workers)

    def rescue_some(self, limit: int, stale_before: datetime | None = None) -> Operation[list[Settlement]]:
        """Whoever still runs what is taken from it is told."""
        settlements = yield from self.store.rescue(limit, stale_before=stale_before)
        yield from self.store.hint([Hint("told", str(settlement.id)) for settlement in settlements])
        return settlements

    def rescue(self, stale_before: datetime | None = None) -> int:
        """Give back what dead workers hold: whose lease is over or, with `stale_before`, who was last heard of
        before that. Workers do this by themselves."""
        return _repeat(lambda: len(self.run_operation(lambda: self.rescue_some(AT_ONCE, stale_before))))

    async def arescue(self, stale_before: datetime | None = None) -> int:
        total = 0
        while settlements := await self.arun_operation(lambda: self.rescue_some(AT_ONCE, stale_before)):
            total += len(settlements)
        return total

    def expire(self) -> int:
        """Cancel what was not started in time (`expires=`): how many. Workers do this by themselves."""
        return _repeat(lambda: len(self.run_operation(lambda: self.store.expire(AT_ONCE))))

    async def aexpire(self) -> int:
        total = 0
        while settlements := await self.arun_operation(lambda: self.store.expire(AT_ONCE)):
            total += len(settlements)
        return total

    def prune(self) -> int:
        """Remove finished jobs whose time to be kept is over: how many. Workers do this by themselves."""
        return _repeat(lambda: self.run_operation(lambda: self.store.prune(AT_ONCE * 10)))

    async def aprune(self) -> int:
        total = 0
        while count := await self.arun_operation(lambda: self.store.prune(AT_ONCE * 10)):
            total += count
        return total

    def _vacuum(self) -> Operation[None]:
        """Reclaim space now."""
        yield from self.store.vacuum()

    vacuum, avacuum = twins(_vacuum)


def _repeat(step: Callable[[], int]) -> int:
    return sum(iter(step, 0))

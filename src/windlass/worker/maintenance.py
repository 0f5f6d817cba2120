"""Maintenance, by every worker beside its jobs: rescue jobs of dead workers, cancel expired jobs, prune the history,
send a heartbeat. Random pauses keep the workers from doing it at the same moment."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

from ..app import Windlass
from ..logs import Log
from ..outcome import Settlement
from ..stores.store import WorkerInfo

log = Log("windlass.worker")

RESCUE_PAGE = 200
RENEW_FIRST_SECONDS = 0.5
EXPIRE_PAGE = 200
PRUNE_PAGE = 5000
PRUNE_SECONDS = 60.0
HEARTBEAT_SECONDS = 15.0
LONGEST_DELAY = 30.0
GONE_SECONDS = 60.0  # after which a worker that was not heard of is struck off the list


class Maintenance:
    def __init__(
        self, app: Windlass, describe: Callable[[], WorkerInfo], rescued: Callable[[list[Settlement]], None],
        expired: Callable[[list[Settlement]], None], rescue_seconds: float, started: Callable[[], int],
    ) -> None:  # fmt: skip
        self.app, self.describe, self.rescue_seconds, self.started = app, describe, rescue_seconds, started
        self.rescued, self.expired = rescued, expired
        self.fields = {"worker": describe().name}
        self._prunes = self._started = 0

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._repeat(self.rescue_seconds, self.rescue))
            group.create_task(self._repeat(3 * self.rescue_seconds, self.expire, at_once=True))
            group.create_task(self._repeat(PRUNE_SECONDS, self.prune))
            group.create_task(self._repeat(HEARTBEAT_SECONDS, self.beat))

    async def _repeat(self, seconds: float, task: Callable[[], Awaitable[None]], at_once: bool = False) -> None:
        delay = 0.0 if at_once else seconds
        while True:
            await asyncio.sleep(delay * random.uniform(0.5, 1.5))
            try:
                await task()
                delay = seconds
            except Exception as error:  # one bad round is not the last
                log.warning("maintenance: %s failed: %s", task.__name__, error, extra=self.fields)
                delay = min(max(2 * delay, 1.0), LONGEST_DELAY)

    async def rescue(self) -> None:
        if not await self.app.arun_for_worker(self.app.store.anyone_lost):
            return
        # The store may have been away, or locked, for as long as a lease. Live workers renew now, before the rescue.
        await asyncio.sleep(RENEW_FIRST_SECONDS)
        while True:
            settlements = await self.app.arun_for_worker(lambda: self.app.rescue_some(RESCUE_PAGE))
            if settlements:
                log.warning("rescued %d jobs whose workers were not heard of", len(settlements), extra=self.fields)
                self.rescued(settlements)
            if len(settlements) < RESCUE_PAGE:
                return

    async def expire(self) -> None:
        while True:
            settlements = await self.app.arun_for_worker(lambda: self.app.store.expire(EXPIRE_PAGE))
            if settlements:
                log.info("%d jobs were not started in time, and are cancelled", len(settlements))
                self.expired(settlements)
            if len(settlements) < EXPIRE_PAGE:
                return

    async def prune(self) -> None:
        """An idle worker does it in every third round: those that run jobs do it in each."""
        self._prunes += 1
        started, gone = self.started(), 1
        if started == self._started and self._prunes % 3:
            return
        while gone:
            gone = await self.app.arun_for_worker(lambda: self.app.store.prune(PRUNE_PAGE))
            await asyncio.sleep(0.05)  # others want to write too
        self._started = started

    async def beat(self) -> None:
        await self.app.arun_for_worker(lambda: self.app.store.beat(self.describe(), GONE_SECONDS))

    async def farewell(self) -> None:
        await self.app.arun_for_worker(lambda: self.app.store.farewell(self.describe().name))

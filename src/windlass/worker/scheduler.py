"""The scheduler, one in each worker: it fires due schedules by the store's clock, and sleeps until the next tick.

Any number of schedulers may run. The first one moves the schedule on, and the others find nothing to do.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable
from datetime import datetime

from ..app import Windlass
from ..duration import Delays
from ..errors import StoreUnavailable, WindlassError
from ..schedule import Schedule, decide_firing, decide_repair
from ..stores.wakeup import Hint

log = logging.getLogger("windlass.worker")

PAGE = 20
GLANCE_SECONDS = 1.0  # between looks for which there is no reason but that something has changed
SPREAD_SECONDS = 0.2  # over which the schedulers of many workers come to one tick
LONGEST_DELAY = 30.0
UNSCHEDULED_SECONDS = 8.0  # between looks while there is no schedule: a hint announces the first. A lost one must not
# make its first tick so late that it counts as missed
REPAIR_SECONDS = 60.0  # between checks that no schedule's next tick is too far ahead


class Scheduler:
    def __init__(self, app: Windlass, fired: Callable[[], None], poll_seconds: float) -> None:
        self.app, self.fired, self.poll_seconds = app, fired, poll_seconds
        self._wrote = False  # the declared schedules
        self._woken = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._looked_at: datetime | None = None  # by the store's clock
        self._looked = 0.0  # by our own
        self._glance: asyncio.Handle | None = None
        self._glance_at = self._repair_at = 0.0

    async def open(self) -> None:
        """Before the worker looks for jobs. A store that takes no writes just now does not keep it from starting."""
        try:
            await self.look()
        except StoreUnavailable as error:
            log.warning("schedules could not be looked at, and will be again: %s", error)

    async def run(self) -> None:
        delays = Delays(GLANCE_SECONDS, LONGEST_DELAY, jitter=(0.5, 1.5))
        try:
            while True:
                self._woken.clear()
                try:
                    await self.rest(await self.look())
                    delays.reset()
                except Exception as error:  # any error of the store: the next look may succeed
                    log.warning("schedules could not be looked at, and will be again: %s", error)
                    await asyncio.sleep(next(delays))
        finally:
            if self._glance is not None:
                self._glance.cancel()

    async def look(self) -> float:
        """Write the declared schedules, once, and fire the due ones: in how many seconds to look again."""
        if not self._wrote:
            await self.app.awrite_schedules()
            self._wrote = True
        return await self.fire_due()

    async def fire_due(self) -> float:
        """Fire until no schedule is due: in how many seconds to look again."""
        while True:
            self._looked = self._loop.time()
            timetable = await self.app.arun_for_worker(lambda: self.app.store.due_schedules(PAGE))
            since, self._looked_at = self._looked_at, timetable.now
            if self._looked >= self._repair_at or (since is not None and timetable.now < since):
                self._repair_at = self._looked + REPAIR_SECONDS
                if await self._repair():
                    continue
            if not timetable.schedules:
                break
            done = [await self._fire(schedule, timetable.now, since) for schedule in timetable.schedules]
            if not any(done):  # the others cannot be fired here
                return max(GLANCE_SECONDS, self.poll_seconds)
        if timetable.next_at is None:
            return max(self.poll_seconds, min(UNSCHEDULED_SECONDS, 2 * self.poll_seconds))
        until = (timetable.next_at - timetable.now).total_seconds()
        return min(self.poll_seconds, until + random.uniform(0, min(SPREAD_SECONDS, until)))

    async def _repair(self) -> bool:
        """Repair schedules whose next tick is too far ahead, because the store's clock was wrong: whether any was."""
        repaired = False
        timetable = await self.app.arun_for_worker(self.app.store.schedules)
        for schedule in timetable.schedules:
            try:
                firing = decide_repair(schedule, timetable.now)
                if firing is not None:
                    moved = await self.app.arun_for_worker(lambda: self.app.store.fire(firing))  # noqa: B023
                    repaired = repaired or moved is not None
            except WindlassError as error:
                log.warning("the schedule %r could not be checked: %s", schedule.name, error)
        return repaired

    async def _fire(self, schedule: Schedule, now: datetime, since: datetime | None) -> bool:
        """Whether it is due no longer. One that cannot be fired is not in the way of the others."""
        try:
            firing = decide_firing(schedule, now, since)
            answers = await self.app.arun_for_worker(lambda: self.app.store.fire(firing))
        except WindlassError as error:
            log.warning("the schedule %r could not be fired, and will be tried again: %s", schedule.name, error)
            return False
        queues = sorted({answer.job.queue for answer in answers or () if answer.created})
        if queues:
            if self.app.notify:
                self.app.store.wakeup.send([Hint("ready", queue) for queue in queues])
            self.fired()
            if self.app.hooks:
                self.app.tell_enqueued([self.app.bind(answer.job, created=answer.created) for answer in answers or ()])
        return True

    # Waiting

    async def rest(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._woken.wait()

    def heard(self, hint: Hint | None) -> None:
        """On the listener's thread: a schedule has changed, or perhaps one has."""
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._woken.set if hint else self._look_soon)

    def _look_soon(self) -> None:
        """A store that can only say that something has changed says so all the time: look once a second at most."""
        now = self._loop.time()
        if self._glance_at <= now:
            self._glance_at = max(self._looked + GLANCE_SECONDS, now)
            self._glance = self._loop.call_at(self._glance_at, self._woken.set)

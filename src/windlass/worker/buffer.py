"""The local buffer between claims and slots.

Slots are long-lived and wait here; whoever came last gets the next job: what it works with is still in the caches. The
buffer holds what the slots will have finished in about a tenth of a second, so that no job waits here while another
worker is idle; before one has run, nothing lies here, and where they turn out to take long, what lies here is given
back.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque

from ..attempt import Attempt

AHEAD_SECONDS = 0.1
MOST_AHEAD = 2000  # jobs, however short they are
STALE_SECONDS = 1.0
LONGEST_LOOK = 0.5  # that counts between two looks: in a longer one the process itself stood still, or the store
WEIGHT = 0.05  # of the newest duration in the average


class Buffer:
    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.items: deque[Attempt] = deque()
        self.room_made = asyncio.Event()
        self.average_seconds: float | None = None  # until one has run
        self._popped = self._seen = 0
        self._looked_at = self._lain = 0.0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._low = 0
        self._wanted = 0
        self._kept: deque[asyncio.Future[Attempt | None]] = deque()

    def __len__(self) -> int:
        return len(self.items)

    @property
    def free(self) -> int:
        """Slots that wait, and for which there is nothing in the buffer."""
        return max(0, len(self._waiting) - len(self.items))

    @property
    def target(self) -> int:
        """How many may lie here."""
        if self.average_seconds is None:
            return 0
        return min(MOST_AHEAD, int(self.slots * AHEAD_SECONDS / max(self.average_seconds, 1e-6)))

    def room(self) -> int:
        """How many to claim now: for the free slots, and ahead once half of what lay here is gone."""
        ahead = self.target - len(self.items)
        return self.free + (ahead if ahead * 2 >= self.target else 0)

    def put(self, attempts: list[Attempt]) -> None:
        self.items.extend(attempts)
        self._low = self.target // 2
        for _ in range(min(len(attempts), len(self._waiting))):
            self._wake_one()

    def _wake_one(self) -> None:
        while self._waiting:
            future = self._waiting.pop()
            if not future.done():
                future.set_result(None)
                return

    # A job's last attempt never waits here: it is claimed for a slot that is kept for it.

    def keep_slots(self, count: int) -> None:
        """Let the next slots that come free wait for `hand`."""
        self._wanted = count

    @property
    def kept(self) -> int:
        return len(self._kept)

    def hand(self, attempts: list[Attempt]) -> None:
        """To the slots that were kept; those that get nothing go on."""
        self._wanted = 0
        given = deque(attempts)
        while self._kept:
            future = self._kept.popleft()
            if not future.done():
                future.set_result(given.popleft() if given else None)
        self.put(list(given))

    async def _wait_for_hand(self) -> Attempt | None:
        future: asyncio.Future[Attempt | None] = asyncio.get_running_loop().create_future()
        self._kept.append(future)
        self.room_made.set()
        try:
            return await future
        except asyncio.CancelledError:
            if not future.done() or future.cancelled():
                with contextlib.suppress(ValueError):
                    self._kept.remove(future)
            elif (attempt := future.result()) is not None:
                self._put_back(attempt)
            raise

    def _put_back(self, attempt: Attempt) -> None:
        """What a slot was given that has been cancelled meanwhile is the next one's."""
        self.items.appendleft(attempt)
        self._wake_one()

    def pop(self) -> Attempt | None:
        """The next, if there is no need to wait."""
        if not self.items or self._wanted:
            return None
        attempt = self.items.popleft()
        self._popped += 1
        if len(self.items) == self._low:
            self.room_made.set()
        return attempt

    async def take(self) -> Attempt:
        while self._wanted > len(self._kept):
            handed = await self._wait_for_hand()
            if handed is not None:
                return handed
        while not self.items:
            future = asyncio.get_running_loop().create_future()
            self._waiting.append(future)
            self.room_made.set()
            try:
                await future
            except asyncio.CancelledError:
                if future.done() and not future.cancelled():
                    self._wake_one()  # what it was woken for is another's now
                else:
                    with contextlib.suppress(ValueError):
                        self._waiting.remove(future)
                raise
        return self.pop() or self.items.popleft()

    def ran(self, seconds: float) -> None:
        average = seconds if self.average_seconds is None else self.average_seconds
        self.average_seconds = average + WEIGHT * (seconds - average)

    def stale(self, *, held_up: bool) -> list[Attempt]:
        """What lies here although no slot has asked for any for a while: the jobs that run take longer than thought.
        Not while the slots are held up by what waits to be written: to give back is to write, too."""
        now = time.monotonic()
        since_last_look = min(now - self._looked_at, LONGEST_LOOK)
        self._looked_at = now
        if not self.items or self._popped != self._seen or held_up:
            self._seen, self._lain = self._popped, 0.0
        else:
            self._lain += since_last_look
        if self._lain < STALE_SECONDS:
            return []
        self.average_seconds = 2 * AHEAD_SECONDS * self.slots  # so that no more is claimed ahead, until some have run
        return self.clear()

    def clear(self) -> list[Attempt]:
        """What was not started."""
        left = list(self.items)
        self.items.clear()
        return left

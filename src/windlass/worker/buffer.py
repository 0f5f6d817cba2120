"""The buffer of prefetched attempts, between claims and slots.

Slots are long-lived and wait here. The slot that came last gets the next attempt: its memory is still in the caches.
The buffer holds as many attempts as the slots end in about a tenth of a second, so that no job waits here while another
worker is idle. Before the first attempt has ended it holds none. If the attempts turn out to take long, the worker
gives back the buffered jobs.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque

from ..attempt import Attempt
from .bell import Bell, Reason
from .ledger import Ledger

STALE_SECONDS = 1.0
LONGEST_LOOK = 0.5  # that counts between two looks: in a longer one the process itself stood still, or the store


class Buffer:
    def __init__(self, ledger: Ledger, bell: Bell) -> None:
        self.ledger, self.bell = ledger, bell
        self.items: deque[Attempt] = deque()
        self._popped = self._seen = 0
        self._looked_at = self._lain = 0.0
        self._slots: deque[asyncio.Future[None]] = deque()  # that wait for an attempt
        self._low = 0  # at so many items it is time to prefetch
        self._keep = 0  # slots that are to wait for a last attempt
        self._kept: deque[asyncio.Future[Attempt | None]] = deque()  # those that do

    def __len__(self) -> int:
        return len(self.items)

    def put(self, attempts: list[Attempt]) -> None:
        self.items.extend(attempts)
        self._low = self.ledger.prefetch_target // 2
        for _ in range(min(len(attempts), len(self._slots))):
            self._wake_one()

    def _wake_one(self) -> None:
        while self._slots:
            future = self._slots.pop()
            if not future.done():
                future.set_result(None)
                return

    # A job's last attempt is never buffered: it is claimed for a slot that waits for it.

    def keep_slots(self, count: int) -> None:
        """The next slots that come free wait for `hand`, whatever is prefetched."""
        self._keep = count

    @property
    def is_keeping(self) -> bool:
        return self._keep > 0

    def release_kept(self) -> None:
        """After a round of claims: the slots that were kept and got nothing take from the buffer again. If none has
        come free yet, the next one is kept: attempts that all end in step with the rounds would never leave one."""
        if self._kept:
            self.hand([])

    def hand(self, attempts: list[Attempt]) -> None:
        """To the kept slots first. The kept slots that get none take from the buffer again."""
        self._keep = 0
        given = deque(attempts)
        while self._kept:
            future = self._kept.popleft()
            if not future.done():
                future.set_result(given.popleft() if given else None)
        self.ledger.kept_slots = 0
        self.put(list(given))

    async def _wait_for_hand(self) -> Attempt | None:
        future: asyncio.Future[Attempt | None] = asyncio.get_running_loop().create_future()
        self._kept.append(future)
        self.ledger.kept_slots = len(self._kept)
        self.bell.ring(Reason.LOOK)  # at once: it takes no prefetched job meanwhile
        try:
            return await future
        except asyncio.CancelledError:
            if not future.done() or future.cancelled():
                with contextlib.suppress(ValueError):
                    self._kept.remove(future)
                self.ledger.kept_slots = len(self._kept)
            elif (attempt := future.result()) is not None:
                self._put_back(attempt)
            raise

    def _put_back(self, attempt: Attempt) -> None:
        """Its slot was cancelled before it started: it is the next slot's."""
        self.items.appendleft(attempt)
        self._wake_one()

    def pop(self) -> Attempt | None:
        """The next attempt, if a slot need not wait for one."""
        return None if not self.items or self._keep else self._next()

    def _next(self) -> Attempt:
        attempt = self.items.popleft()
        self._popped += 1
        if len(self.items) == self._low:
            self.bell.ring(Reason.ROOM)
        return attempt

    async def take(self) -> Attempt:
        while self._keep > len(self._kept):
            handed = await self._wait_for_hand()
            if handed is not None:
                return handed
        while not self.items:
            future = asyncio.get_running_loop().create_future()
            self._slots.append(future)
            self.bell.ring(Reason.ROOM)
            try:
                await future
            except asyncio.CancelledError:
                if future.done() and not future.cancelled():
                    self._wake_one()  # the attempt that woke it is another slot's
                else:
                    with contextlib.suppress(ValueError):
                        self._slots.remove(future)
                raise
        return self._next()

    def stale(self) -> list[Attempt]:
        """Take out all attempts if no slot has taken one for a while: the attempts that run take longer than expected.
        Not under backpressure: the slots wait for the store, and to give jobs back is to write, too."""
        now = time.monotonic()
        since_last_look = min(now - self._looked_at, LONGEST_LOOK)
        self._looked_at = now
        if not self.items or self._popped != self._seen or self.ledger.is_full:
            self._seen, self._lain = self._popped, 0.0
        else:
            self._lain += since_last_look
        if self._lain < STALE_SECONDS:
            return []
        self.ledger.stop_prefetch()
        return self.clear()

    def clear(self) -> list[Attempt]:
        """The attempts that were not started."""
        left = list(self.items)
        self.items.clear()
        return left

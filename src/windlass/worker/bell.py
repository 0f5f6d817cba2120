"""The bell: why the pump has to look again.

Notifications from other threads touch nothing but the bell. The pump takes the reasons at the start of each turn. A
reason that is rung after that stays for the next turn, so no wake-up is lost.
"""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass
from enum import Flag, auto

from ..logs import Log

log = Log("windlass.worker")


class Reason(Flag):
    HINT = auto()  # a job of a queue may be ready
    CHAIN = auto()  # a chain continues in a queue that this worker serves
    LOOK = auto()  # something has changed
    STOP = auto()
    ROOM = auto()  # a slot is free, or prefetched jobs have started
    ENDED = auto()  # an attempt has ended, and may have freed other jobs


ALWAYS = Reason.HINT | Reason.CHAIN | Reason.LOOK | Reason.STOP
NOTHING = Reason(0)


@dataclass(frozen=True, slots=True)
class Reasons:
    kinds: Reason = NOTHING
    hinted: frozenset[str] = frozenset()  # queues that notifications have named
    chains: frozenset[str] = frozenset()  # queues in which chains continue
    any_queue: bool = False  # a notification did not say which queue

    @property
    def urge(self) -> bool:
        """Whether anything beside room and ended attempts has been said."""
        return bool(self.kinds & ALWAYS)


class Bell:
    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()
        self._lock = threading.Lock()
        self._wakes = NOTHING  # the reasons that end the wait that is under way
        self._clear()

    def _clear(self) -> None:
        self._kinds, self._room, self._any_queue = NOTHING, False, False
        self._hinted: set[str] = set()
        self._chains: set[str] = set()

    def ring(self, reason: Reason, queue: str | None = None) -> None:
        """On the event loop's thread."""
        self._note(reason, queue)
        if reason & self._wakes:
            self._event.set()

    def ring_from_thread(self, reason: Reason, queue: str | None = None) -> None:
        self._note(reason, queue)
        try:
            self._loop.call_soon_threadsafe(self._event.set)
        except RuntimeError:
            log.debug("a hint came after the end")

    def _note(self, reason: Reason, queue: str | None) -> None:
        if reason is Reason.ROOM:  # rung often, and by the loop's thread alone: without the lock
            self._room = True
            return
        with self._lock:
            self._kinds |= reason
            if reason is Reason.HINT:
                if queue is None:
                    self._any_queue = True
                else:
                    self._hinted.add(queue)
            elif reason is Reason.CHAIN and queue is not None:
                self._chains.add(queue)

    def take(self) -> Reasons:
        with self._lock:
            reasons = Reasons(self._rung, frozenset(self._hinted), frozenset(self._chains), self._any_queue)
            self._clear()
            self._event.clear()
            return reasons

    def has(self, reason: Reason) -> bool:
        """Whether it was rung since the last `take`."""
        return bool(self._rung & reason)

    @property
    def _rung(self) -> Reason:
        return self._kinds | Reason.ROOM if self._room else self._kinds

    async def wait(self, seconds: float, also: Reason = NOTHING) -> None:
        """For so long at most, until something is rung. ROOM and ENDED end the wait only if `also` names them."""
        if seconds <= 0:
            return
        self._wakes = ALWAYS | also
        self._event.clear()
        if self._rung & self._wakes:
            return
        timer = self._loop.call_later(seconds, self._event.set)
        try:
            await self._event.wait()
        finally:
            timer.cancel()
            self._wakes = NOTHING

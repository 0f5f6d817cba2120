"""Connection pools of Windlass, for threads and for an event loop. Connections are opened when needed, up to a limit.

The pools have neither threads nor tasks, so nothing has to be stopped when an event loop ends.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from ...operation import Operation, arun
from .own import AsyncLink, SyncLink, aend, end, idle, usable

T = TypeVar("T")

WAIT_SECONDS = 0.5


@contextmanager
def place(places: threading.Semaphore) -> Iterator[None]:
    """One place, waited for in short slices. A thread that waits without end cannot be interrupted; and a thread that
    is interrupted as it is woken would lose the wake-up for the next one."""
    while not places.acquire(timeout=WAIT_SECONDS):
        pass
    try:
        yield
    finally:
        places.release()


class SyncPool:
    def __init__(self, size: int, connect: Callable[[], SyncLink]) -> None:
        self.connect = connect
        self.idle: list[SyncLink] = []
        self._places = threading.BoundedSemaphore(size)

    @contextmanager
    def link(self) -> Iterator[SyncLink]:
        with place(self._places):
            link = next((one for one in iter(self._pop, None) if usable(one.connection)), None)
            link = link or self.connect()
            try:
                yield link
            finally:
                if idle(link.connection):
                    self.idle.append(link)
                else:
                    end(link.connection)
                    if link.connection.unanswered:
                        self.close()  # if one is half open, others are too

    def _pop(self) -> SyncLink | None:
        try:
            return self.idle.pop()
        except IndexError:
            return None

    def close(self) -> None:
        while (link := self._pop()) is not None:
            link.connection.close()


class AsyncPool:
    """`SyncPool`, awaited: of one event loop."""

    def __init__(self, size: int, connect: Callable[[], Awaitable[AsyncLink]]) -> None:
        self.connect = connect
        self.idle: list[AsyncLink] = []
        self._places = asyncio.Semaphore(size)

    async def run(self, make: Callable[[], Operation[T]]) -> T:
        async with self._places:
            link = None
            while self.idle and link is None:
                candidate = self.idle.pop()
                link = candidate if usable(candidate.connection) else None
            link = link or await self.connect()
            try:
                return await arun(make, link)
            finally:
                if idle(link.connection):
                    self.idle.append(link)
                else:
                    await aend(link.connection)
                    if link.connection.unanswered:
                        await self.close()

    async def close(self) -> None:
        while self.idle:
            await self.idle.pop().connection.close()

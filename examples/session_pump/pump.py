"""The pump of one session: claim, handle, confirm, and wait for an event when there is nothing to claim."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from windlass import Attempt, Job, LeaseLost, StoreUnavailable

from .messages import Messages

log = logging.getLogger(__name__)

T = TypeVar("T")
Handle = Callable[[Job], Awaitable[Any]]
"""Handles a message: `job.input["content"]` of the session `job.tenant`. What it returns is kept as `job.output`."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How patient a pump is, in seconds."""

    idle_seconds: float = 180.0
    retries: int = 3
    retry_seconds: float = 0.25

    def __post_init__(self) -> None:
        if not self.idle_seconds > 0:
            raise ValueError(f"idle_seconds must be more than 0, or the pump ends at once; not {self.idle_seconds}")
        if self.retries < 0:
            raise ValueError(f"retries is 0 (none) or more, not {self.retries}")
        if not self.retry_seconds >= 0:
            raise ValueError(f"retry_seconds is 0 (at once) or more, not {self.retry_seconds}")


class Pump:
    """Messages of one session, one after the other, until it is aborted or nothing has come for a while."""

    def __init__(self, messages: Messages, session: str, handle: Handle, settings: Settings | None = None) -> None:
        self.messages, self.session, self.handle = messages, session, handle
        self.settings = settings or Settings()
        self.looks = 0  # how often it asked for a message: while nothing happens, that does not grow
        self._woken, self._aborted = asyncio.Event(), asyncio.Event()
        self._handling: asyncio.Future[Any] | None = None

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        deafen = self.messages.listen(lambda: _tell(loop, self.wake))
        try:
            deadline = loop.time() + self.settings.idle_seconds
            while not self._aborted.is_set():
                self._woken.clear()  # before the look, so that what comes after it is not missed
                message = await self._patiently(self._claim)
                if message is not None:
                    await self._process(message)
                    deadline = loop.time() + self.settings.idle_seconds
                elif not await _happens(self._woken, deadline - loop.time()):
                    return
        finally:
            deafen()

    def wake(self) -> None:
        """There may be a message."""
        self._woken.set()

    def abort(self) -> None:
        """End now: a message that is in hand is given back, for the next pump to begin with."""
        self._aborted.set()
        self._woken.set()
        if self._handling is not None:
            self._handling.cancel()

    async def _claim(self) -> Attempt | None:
        self.looks += 1
        return await self.messages.claim_next(self.session)

    async def _process(self, message: Attempt) -> None:
        self._handling = asyncio.ensure_future(self.handle(message.job))
        if self._aborted.is_set():  # while it was claimed
            self._handling.cancel()
        try:
            with suppress(LeaseLost):  # someone else has ended this message meanwhile
                await self._settle(message, self._handling)
        finally:
            self._handling = None

    async def _settle(self, message: Attempt, handling: asyncio.Future[Any]) -> None:
        try:
            result = await handling
        except asyncio.CancelledError:
            if not self._aborted.is_set():
                raise
            await self._patiently(message.arelease)
        except Exception as error:
            log.info("message %s of session %s failed: %s", message.job.id, self.session, error)
            failure = error
            await self._patiently(lambda: message.afail(failure))
        else:
            await self._patiently(lambda: message.acomplete(result))

    async def _patiently(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Once more, and once more, when the database cannot be reached for a moment."""
        for _ in range(self.settings.retries):
            try:
                return await ask()
            except StoreUnavailable as error:
                log.info("session %s: %s; trying again", self.session, error)
                await _happens(self._aborted, self.settings.retry_seconds)
        return await ask()


async def _happens(event: asyncio.Event, seconds: float) -> bool:
    """Wait for an event: whether it came in time."""
    with suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), seconds)
    return event.is_set()


def _tell(loop: asyncio.AbstractEventLoop, wake: Callable[[], None]) -> None:
    with suppress(RuntimeError):  # the loop has ended meanwhile
        loop.call_soon_threadsafe(wake)

"""The pump of one session: claim a message, handle it, settle it. It waits for an event if there is no message."""

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
"""Handles the message `job.input["content"]` of the session `job.tenant`. Its result becomes `job.output`."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The timeouts and the retries of a pump."""

    idle_seconds: float = 180.0
    retries: int = 3
    retry_seconds: float = 0.25

    def __post_init__(self) -> None:
        if not self.idle_seconds > 0:
            raise ValueError(f"idle_seconds must be more than 0, not {self.idle_seconds}: the pump would end at once")
        if self.retries < 0:
            raise ValueError(f"retries is 0 (none) or more, not {self.retries}")
        if not self.retry_seconds >= 0:
            raise ValueError(f"retry_seconds is 0 (at once) or more, not {self.retry_seconds}")


class Pump:
    """Handles the messages of one session in order, until it is aborted or no message has come for a while."""

    def __init__(self, messages: Messages, session: str, handle: Handle, settings: Settings | None = None) -> None:
        self.messages, self.session, self.handle = messages, session, handle
        self.settings = settings or Settings()
        self.looks = 0  # the number of claims that it tried; it does not grow while the pump waits
        self._woken, self._aborted = asyncio.Event(), asyncio.Event()
        self._handling: asyncio.Future[Any] | None = None

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        stop_listening = self.messages.listen(lambda: _wake_in_loop(loop, self.wake))
        try:
            deadline = loop.time() + self.settings.idle_seconds
            while not self._aborted.is_set():
                self._woken.clear()  # before the claim, so that a message that comes after it is not missed
                message = await self._with_retries(self._claim)
                if message is not None:
                    await self._process(message)
                    deadline = loop.time() + self.settings.idle_seconds
                elif not await _wait_for(self._woken, deadline - loop.time()):
                    return
        finally:
            stop_listening()

    def wake(self) -> None:
        """Make the pump look for a message."""
        self._woken.set()

    def abort(self) -> None:
        """End now. A claimed message is released, and the next pump starts with it."""
        self._aborted.set()
        self._woken.set()
        if self._handling is not None:
            self._handling.cancel()

    async def _claim(self) -> Attempt | None:
        self.looks += 1
        return await self.messages.claim_next(self.session)

    async def _process(self, message: Attempt) -> None:
        self._handling = asyncio.ensure_future(self.handle(message.job))
        if self._aborted.is_set():  # during the claim
            self._handling.cancel()
        try:
            with suppress(LeaseLost):  # the message was settled from outside in the meantime
                await self._settle(message, self._handling)
        finally:
            self._handling = None

    async def _settle(self, message: Attempt, handling: asyncio.Future[Any]) -> None:
        try:
            result = await handling
        except asyncio.CancelledError:
            if not self._aborted.is_set():
                raise
            await self._with_retries(message.arelease)
        except Exception as error:
            log.info("message %s of session %s failed: %s", message.job.id, self.session, error)
            failure = error
            await self._with_retries(lambda: message.afail(failure))
        else:
            await self._with_retries(lambda: message.acomplete(result))

    async def _with_retries(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Try again if the database cannot be reached for a moment."""
        for _ in range(self.settings.retries):
            try:
                return await ask()
            except StoreUnavailable as error:
                log.info("session %s: %s; trying again", self.session, error)
                await _wait_for(self._aborted, self.settings.retry_seconds)
        return await ask()


async def _wait_for(event: asyncio.Event, seconds: float) -> bool:
    """Wait for an event. Return whether it came in time."""
    with suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), seconds)
    return event.is_set()


def _wake_in_loop(loop: asyncio.AbstractEventLoop, wake: Callable[[], None]) -> None:
    with suppress(RuntimeError):  # the loop has ended
        loop.call_soon_threadsafe(wake)

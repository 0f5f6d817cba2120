"""All pumps of a process: one for each session that has messages."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import Any

from windlass import Job, StoreUnavailable

from .messages import Messages
from .pump import Handle, Pump, Settings

log = logging.getLogger(__name__)

PRUNE_SECONDS = 3600.0


class Station:
    """`async with Station(messages, handle):` takes over the messages in the database and pumps new ones."""

    def __init__(self, messages: Messages, handle: Handle, settings: Settings | None = None) -> None:
        self.messages, self.handle, self.settings = messages, handle, settings
        self._pumps: dict[str, tuple[Pump, asyncio.Task[None]]] = {}

    async def __aenter__(self) -> Station:
        for session in await self.messages.take_over():
            self.start(session)
        self._pruning = asyncio.create_task(self._forget_old())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._pruning.cancel()
        running = list(self._pumps.values())
        for pump, _task in running:
            pump.abort()
        await asyncio.gather(self._pruning, *(task for _pump, task in running), return_exceptions=True)

    async def send(self, session: str, content: Any, tool_use_id: str | None = None) -> Job:
        """Enqueue a message, and start a pump for its session."""
        job = await self.messages.enqueue(session, content, tool_use_id)
        self.start(session)
        return job

    async def try_again(self, job: Job) -> Job:
        """Retry a failed message. It becomes the last of its session."""
        back = await job.aretry()
        self.start(job.tenant)
        return back

    def start(self, session: str) -> None:
        """Start a pump for this session. If there is one, wake it, because it may be about to end."""
        if session in self._pumps and not self._pumps[session][1].done():
            self._pumps[session][0].wake()
            return
        pump = Pump(self.messages, session, self.handle, self.settings)
        task = asyncio.create_task(pump.run(), name=f"pump of {session}")
        self._pumps[session] = pump, task
        task.add_done_callback(lambda _: self._ended(session, task))

    @property
    def sessions(self) -> set[str]:
        """The sessions that have a pump."""
        return {session for session, (_, task) in self._pumps.items() if not task.done()}

    async def _forget_old(self) -> None:
        while True:
            await asyncio.sleep(PRUNE_SECONDS)
            with suppress(StoreUnavailable):
                await self.messages.forget_old()

    def _ended(self, session: str, task: asyncio.Task[None]) -> None:
        if self._pumps.get(session, (None, None))[1] is task:
            del self._pumps[session]
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("the pump of session %s ended: %s; the next message starts another", session, error)

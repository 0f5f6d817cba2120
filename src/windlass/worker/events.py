"""Hooks: called after the event, on a separate thread. A hook that fails or is slow disturbs no job."""

from __future__ import annotations

import asyncio
import inspect
import queue
import threading
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from ..app import Windlass
from ..attempt import Attempt
from ..job import Job
from ..logs import Log
from ..outcome import Settlement

log = Log("windlass.worker")

MOST_WAITING = 10_000
FINISH_SECONDS = 5.0


class Event(msgspec.Struct, frozen=True):
    """What happened to a job: enqueued, started, completed, failed, cancelled, retried, snoozed, rescued or expired."""

    name: str
    id: Any
    job: Job | None
    settlement: Settlement | None = None


class Events:
    def __init__(self, app: Windlass) -> None:
        self.hooks: dict[str, list[Callable[[Event], Any]]] = app.hooks
        self._queue: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()

    def settled(self, attempt: Attempt, settlement: Settlement) -> None:
        if self.hooks:
            name = settlement.state
            if name == "pending":
                name = "retried" if settlement.error else "snoozed"  # type: ignore[assignment]
            self._send(Event(name, settlement.id, attempt.job, settlement))

    def enqueued(self, jobs: Sequence[Job]) -> None:
        """Called by an app, on any of its threads."""
        for job in jobs:
            self._send(Event("enqueued", job.id, job))

    def started(self, attempt: Attempt) -> None:
        if self.hooks:
            self._send(Event("started", attempt.job.id, attempt.job))

    def rescued(self, settlements: list[Settlement]) -> None:
        self._by_maintenance("rescued", settlements)

    def expired(self, settlements: list[Settlement]) -> None:
        self._by_maintenance("expired", settlements)

    def _by_maintenance(self, name: str, settlements: list[Settlement]) -> None:
        for settlement in settlements if self.hooks else ():
            self._send(Event(name, settlement.id, None, settlement))

    def _send(self, event: Event) -> None:
        if event.name not in self.hooks:
            return
        if self._queue.qsize() > MOST_WAITING:
            log.warning("hooks are too slow: an event was dropped")
            return
        with self._starting:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="windlass-hooks", daemon=True)
                self._thread.start()
        self._queue.put(event)

    def _run(self) -> None:
        while (event := self._queue.get()) is not None:
            for hook in self.hooks.get(event.name, ()):
                try:
                    answer = hook(event)
                    if inspect.iscoroutine(answer):
                        asyncio.run(answer)
                except BaseException:  # sys.exit, too: it would end this thread, and with it all hooks
                    log.exception("a hook for %s failed", event.name)

    async def close(self, within: float) -> None:
        await asyncio.to_thread(self.finish, within)

    def finish(self, within: float = FINISH_SECONDS) -> None:
        """Wait until the hooks have got all events, for so long at most. Later events start another thread."""
        with self._starting:
            thread, self._thread = self._thread, None
            if thread is not None:
                self._queue.put(None)
        if thread is not None and thread is not threading.current_thread():
            thread.join(within)

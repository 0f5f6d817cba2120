"""Hooks: called after the event, on a separate thread. A hook that fails or is slow disturbs no job.

An event is made only if a hook is registered for its name.
"""

from __future__ import annotations

import asyncio
import inspect
import queue
import threading
from collections.abc import Callable, Sequence
from typing import Any

from ..app import Windlass
from ..attempt import Attempt
from ..events import BatchEvent as BatchEvent
from ..events import Event as Event
from ..job import Job
from ..lifecycle import PENDING
from ..logs import Log
from ..outcome import Settlement

log = Log("windlass.hooks")

MOST_WAITING = 10_000
FINISH_SECONDS = 5.0


class Events:
    """The events of one worker. An app has one without a worker, for "enqueued"."""

    def __init__(self, app: Windlass, worker: str | None = None) -> None:
        self.hooks: dict[str, list[Callable[[Any], Any]]] = app.hooks
        self.worker = worker
        self._queue: queue.SimpleQueue[Event | BatchEvent | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()

    # Of one job

    def enqueued(self, jobs: Sequence[Job]) -> None:
        """Called by an app, on any of its threads."""
        for job in jobs if "enqueued" in self.hooks else ():
            self._send(Event("enqueued", job.id, job))

    def started(self, attempt: Attempt) -> None:
        if "started" in self.hooks:
            self._send(Event("started", attempt.job.id, attempt.job, worker=self.worker))

    def ended(self, attempt: Attempt, settlement: Settlement) -> None:
        """The store has taken the outcome of this attempt."""
        name: str = settlement.state
        if name == PENDING:
            name = "retried" if settlement.error else "snoozed"
        self._about(name, attempt, settlement)

    def lease_lost(self, attempt: Attempt) -> None:
        self._about("lease_lost", attempt, None)

    def _about(self, name: str, attempt: Attempt, settlement: Settlement | None) -> None:
        if name in self.hooks:
            job = attempt.job
            self._send(Event(name, job.id, job, settlement, duration=attempt.ran_seconds, worker=self.worker))

    def rescued(self, settlements: list[Settlement]) -> None:
        self._by_maintenance("rescued", settlements)

    def expired(self, settlements: list[Settlement]) -> None:
        self._by_maintenance("expired", settlements)

    def _by_maintenance(self, name: str, settlements: list[Settlement]) -> None:
        for settlement in settlements if name in self.hooks else ():
            self._send(Event(name, settlement.id, None, settlement, worker=self.worker))

    # Of a batch

    def claimed(self, queue: str, count: int, seconds: float, *, prefetch: bool) -> None:
        if "claimed" in self.hooks:
            self._send(
                BatchEvent(
                    name="claimed", worker=self.worker, count=count, seconds=seconds, queue=queue, prefetch=prefetch
                )
            )

    def settled(self, count: int, seconds: float, *, refused: int) -> None:
        if "settled" in self.hooks:
            self._send(BatchEvent(name="settled", worker=self.worker, count=count, seconds=seconds, refused=refused))

    # The thread

    def _send(self, event: Event | BatchEvent) -> None:
        """It never raises: the caller has jobs in its hands."""
        if self._queue.qsize() > MOST_WAITING:
            log.warning("hooks are too slow: an event was dropped")
            return
        with self._starting:
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="windlass-hooks", daemon=True)
                try:
                    thread.start()
                except RuntimeError as error:  # the process has too many threads, or ends
                    log.warning("hooks for %s were not called: %s", event.name, error)
                    return
                self._thread = thread
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

"""The processor: every interval it claims a batch of due tasks of all types, and runs them one after the other.

It has its own loop with `app.claim` and does not run a Windlass worker. A worker claims only the types that it has
handlers for. Here a task of an unknown type must fail, so that it is visible.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any

from windlass import Attempt, Cancel, LeaseLost, StoreUnavailable, Windlass

from .settings import Settings
from .tasks import QUEUE

Handler = Callable[[Mapping[str, Any]], None]
"""Runs a task with this body. An exception means: try again later."""

log = logging.getLogger(__name__)


class UnknownTaskType(LookupError):
    """There is no handler for this type. The task waits for a release that has one."""


class Processor:
    """One replica. Any number of replicas share the work."""

    def __init__(self, app: Windlass, handlers: Mapping[str, Handler], settings: Settings) -> None:
        self.app, self.handlers, self.settings = app, handlers, settings
        self._stopping = threading.Event()

    def run(self) -> None:
        """Run batches until `stop`. After a full batch the next one starts at once, otherwise after the interval."""
        while not self._stopping.is_set():
            try:
                full = self.run_once() == self.settings.batch_size
            except StoreUnavailable as error:
                log.error("the database does not answer; trying again after the interval: %s", error)
                full = False
            if not full:
                self._stopping.wait(self.settings.processor_interval.total_seconds())

    def stop(self) -> None:
        """Stop after the current task, and release the other tasks of its batch."""
        self._stopping.set()

    def run_once(self) -> int:
        """Run one batch. Return the number of claimed tasks."""
        self.app.rescue()
        self.app.expire()
        settings = self.settings
        attempts = self.app.claim(settings.batch_size, queues=[QUEUE], lease=settings.stale_claim_timeout)
        for attempt in attempts:
            try:
                self._process(attempt)
            except LeaseLost as lost:
                log.warning("another processor has this task now: %s", lost)
        if attempts:
            log.info("processed %d tasks", len(attempts))
        return len(attempts)

    def _process(self, attempt: Attempt) -> None:
        if self._stopping.is_set():
            attempt.release()
            return
        attempt.renew()  # the batch may have taken long: this fails if another processor has the task now
        try:
            self._execute(attempt)
        except Exception as error:
            log.warning("task %s %s: %s: %s", attempt.job.type, attempt.job.id, type(error).__name__, error)
            attempt.retry(error, after=self.settings.retry_delay)
        else:
            attempt.complete()
            log.info("task %s %s: completed", attempt.job.type, attempt.job.id)

    def _execute(self, attempt: Attempt) -> None:
        if attempt.cancel_requested:
            raise Cancel("cancelled before it was started")
        handler = self.handlers.get(attempt.job.type)
        if handler is None:
            raise UnknownTaskType(f"there is no handler for {attempt.job.type!r}")
        handler(attempt.job.input)

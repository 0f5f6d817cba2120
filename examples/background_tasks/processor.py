"""The processor: every interval it claims a batch of due tasks, of whatever type, and runs them one after the other.

It drives a loop of its own with `app.claim` instead of running a Windlass worker, since a worker claims only the types
that it has handlers for, and here a task of an unknown type is to fail where it can be seen.
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
"""Given a task's body, does it. An exception means: not done, try again later."""

log = logging.getLogger(__name__)


class UnknownTaskType(LookupError):
    """Nobody here can do this task. It waits for someone who can, such as the next release."""


class Processor:
    """One replica. Any number of them share the work; none knows of the others."""

    def __init__(self, app: Windlass, handlers: Mapping[str, Handler], settings: Settings) -> None:
        self.app, self.handlers, self.settings = app, handlers, settings
        self._stopping = threading.Event()

    def run(self) -> None:
        """Until `stop`. After a full batch the next follows at once; after any other, in an interval."""
        while not self._stopping.is_set():
            try:
                full = self.run_once() == self.settings.batch_size
            except StoreUnavailable as error:
                log.error("the database does not answer, the next try is in an interval: %s", error)
                full = False
            if not full:
                self._stopping.wait(self.settings.processor_interval.total_seconds())

    def stop(self) -> None:
        """Let the current task end, and give back what was claimed with it."""
        self._stopping.set()

    def run_once(self) -> int:
        """Run one batch: how many were claimed."""
        self.app.rescue()
        self.app.expire()
        settings = self.settings
        attempts = self.app.claim(settings.batch_size, queues=[QUEUE], lease=settings.stale_claim_timeout)
        for attempt in attempts:
            try:
                self._process(attempt)
            except LeaseLost as lost:
                log.warning("another processor has this task by now: %s", lost)
        if attempts:
            log.info("processed %d tasks", len(attempts))
        return len(attempts)

    def _process(self, attempt: Attempt) -> None:
        if self._stopping.is_set():
            attempt.release()
            return
        attempt.renew()  # The batch may have taken long: start only what is still ours.
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

"""Events: their names, and the values that hooks receive. This module does no I/O.

An observer (an alert, metrics, traces) needs nothing beside these events.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

import msgspec

from .errors import InvalidInput
from .job import Job
from .outcome import Settlement

EVENTS: Mapping[str, str] = {
    # Of one job: hooks receive an `Event`
    "enqueued": "a job was enqueued, and its transaction has committed",
    "started": "an attempt starts",
    "completed": "a job has completed",
    "failed": "a job has failed",
    "cancelled": "a job was cancelled",
    "retried": "an attempt failed, and the job waits for its next attempt",
    "snoozed": "a job waits again and no attempt was spent, after `Snooze` or because the worker gave the job back",
    "lease_lost": "an attempt has lost its lease, so its outcome does not count",
    "rescued": "a worker has taken a job from a dead worker",
    "expired": "a worker has cancelled a job that did not start in time",
    # Of a batch: hooks receive a `BatchEvent`
    "claimed": "the store has answered a claim, with or without jobs",
    "settled": "the store has answered a batch of outcomes",
}


class Event(msgspec.Struct, frozen=True):
    """An event of one job. `EVENTS` lists the names. `job` is None for "rescued" and "expired"."""

    name: str
    id: Any
    job: Job | None
    settlement: Settlement | None = None
    duration: float | None = None  # seconds that the attempt ran; None: it did not start, or has not ended
    worker: str | None = None  # None for "enqueued"

    @property
    def wait(self) -> float | None:
        """Seconds from the moment when the job was due to its claim, by the clock of the store. None: not claimed, or
        the event has no job. It is computed on access, so an event costs the worker no more than before."""
        if self.job is None or (claimed_at := self.job.claimed_at) is None:
            return None
        due_at = max(self.job.run_at, self.job.created_at)
        return max(0.0, (claimed_at - due_at).total_seconds())


class BatchEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event of many jobs at once. A type of its own, since it shares only `name` and `worker` with an `Event`."""

    name: str
    worker: str | None
    count: int  # "claimed": jobs that the claim took; "settled": outcomes that were sent
    seconds: float  # from the request to the answer of the store
    queue: str | None = None  # "claimed" only
    prefetch: bool = False  # "claimed": for the buffer; False: for free slots
    refused: int = 0  # "settled": outcomes that the store refused, because their attempts had lost their leases


def check_event(name: object) -> None:
    if isinstance(name, str) and name in EVENTS:
        return
    near = difflib.get_close_matches(str(name), EVENTS, 1)
    guess = f" (do you mean {near[0]!r}?)" if near else ""
    raise InvalidInput(f"there is no event {name!r}{guess}; there are: {', '.join(EVENTS)}")

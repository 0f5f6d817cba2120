"""What the pump knows of one queue: how much of it may be held here, and where its last claim left off; and of claims
whose answers were lost."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

from ..app import Queues
from ..call import check_name
from ..errors import InvalidInput
from ..job import Job
from ..stores.store import Position

FRESH_SECONDS = 0.1
TIMES = 10
LATE_SECONDS = 3.0  # after which a claim that was cut short is no longer carried out by the server


@dataclass
class Served:
    """A queue that this worker serves; `limit` bounds how many of its jobs are here at once."""

    name: str
    limit: int | None = None
    held: int = 0
    after: Position | None = None
    resting: bool = False  # what is due there is not for us
    told: bool = False  # someone has said since that there is more
    _from_start: float = 0.0
    _took: float = field(default=0.0)

    def room(self, room: int) -> int:
        return room if self.limit is None else max(0, min(room, self.limit - self.held))

    def is_worth_a_look(self) -> bool:
        told, self.told = self.told, False
        return told or not self.resting

    def wake(self) -> None:
        """Something was said of this very queue. It may be for later, so the queue is looked at as any other, until
        nothing has come of that for a while."""
        self.told, self.resting = True, False

    def position(self) -> Position | None:
        """Where to go on: dead entries pile up at the head of the index while an old snapshot is held open
        somewhere. From the very start often enough that late commits and higher priorities are not starved."""
        stale = time.monotonic() - self._from_start > max(FRESH_SECONDS, TIMES * self._took)
        return None if stale else self.after

    def claimed(self, jobs: list[Job], wanted: int, began: float, from_start: bool) -> None:
        now = time.monotonic()
        if from_start:
            self._from_start, self._took = now, now - began
        if len(jobs) < wanted:
            self.after = None
        else:
            last = jobs[-1]
            self.after = Position(-last.priority, last.run_at, last.id)
        self.held += len(jobs)
        if jobs:
            self.resting = False


@dataclass
class Unanswered:
    """A claim that was sent, and of which nobody knows whether it was carried out: its token tells, once the store can
    be asked. A server may carry it out after its client is gone, so one look that finds nothing is not the last."""

    token: UUID
    served: Served
    began: float
    _seen: set[UUID] = field(default_factory=set)
    _asked_at: float | None = None

    def found(self, jobs: list[Job]) -> list[Job]:
        """Those that were not found before."""
        new = [job for job in jobs if job.id not in self._seen]
        self._seen.update(job.id for job in new)
        self._asked_at = self._asked_at or time.monotonic()
        return new

    def is_over(self, now: float) -> bool:
        return self._asked_at is not None and now - self._asked_at > LATE_SECONDS


def queue_limits(queues: Queues | None) -> dict[str, int | None] | None:
    """The queues that a worker serves, each with its limit; None for all."""
    if queues is None:
        return None
    if isinstance(queues, str):
        raise InvalidInput("queues is a list of names, or a mapping of names to limits")
    limits = dict(queues) if isinstance(queues, Mapping) else dict.fromkeys(queues)
    for name, limit in limits.items():
        check_name("queue", name)
        if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 1):
            raise InvalidInput(f"queue {name}: a limit is a number from 1 on, not {limit!r}")
    return limits

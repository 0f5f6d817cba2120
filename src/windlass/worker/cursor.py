"""What a worker remembers of one queue, and of claims whose answers were lost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

from ..app import Queues
from ..call import check_name
from ..errors import InvalidInput
from ..job import Job
from ..stores.store import Position
from .turn import LAST_ATTEMPTS_SECONDS

FRESH_SECONDS = 0.1
TIMES = 10
LATE_SECONDS = 3.0  # after which a claim that was cut short is no longer carried out by the server
FORGET_SECONDS = 60.0  # after which a queue without jobs is forgotten, if the worker serves all queues


@dataclass
class QueueCursor:
    """Where the last claim from a queue ended.

    Dead index entries pile up before the first live job while an old snapshot is open on the server: a claim that
    starts at the cursor skips them. Claims start from the very beginning often enough that late commits and higher
    priorities do not starve.
    """

    queue: str
    seen_at: float = 0.0  # when a look last saw a job in it
    after: Position | None = None
    stuck: bool = False  # this worker cannot run any job that is due there
    hinted: bool = False  # a hint has named the queue since
    claimed_at: float = 0.0  # when a claim from it was last sent
    slots_served_at: float = 0.0  # when a claim last took any job, also last attempts
    _from_start_at: float = 0.0
    _took: float = 0.0

    def turn(self) -> tuple[bool, float]:
        """The lower, the sooner its turn in a round. A hint says nothing new of a queue that is known to be long."""
        return not (self.hinted and self.after is None), self.claimed_at

    def is_worth_a_claim(self) -> bool:
        hinted, self.hinted = self.hinted, False
        return hinted or not self.stuck

    def wake(self) -> None:
        """A hint names this queue. The job may be for later, so the queue is claimed from until that proves useless."""
        self.hinted, self.stuck = True, False

    def is_long(self, now: float) -> bool:
        """The last claim found as many jobs as it wanted. Not when it is time to look for last attempts."""
        return self.after is not None and now - self.slots_served_at < LAST_ATTEMPTS_SECONDS

    def position(self, now: float) -> Position | None:
        stale = now - self._from_start_at > max(FRESH_SECONDS, TIMES * self._took)
        return None if stale else self.after

    def claimed(self, jobs: list[Job], wanted: int, began: float, now: float, *, from_start: bool) -> None:
        if from_start:
            self._from_start_at, self._took = now, now - began
        if len(jobs) < wanted:
            self.after = None
        else:
            last = jobs[-1]
            self.after = Position(-last.priority, last.run_at, last.id)
        if jobs:
            self.stuck, self.seen_at = False, now


@dataclass
class Unanswered:
    """A claim that was sent and may have been carried out: its token tells, once the store can be asked. A server may
    carry it out after its client is gone, so one look that finds nothing is not the last."""

    token: UUID
    queue: str
    began: float
    _seen: set[UUID] = field(default_factory=set)
    _asked_at: float | None = None

    def found(self, jobs: list[Job], now: float) -> list[Job]:
        """Those that were not found before."""
        new = [job for job in jobs if job.id not in self._seen]
        self._seen.update(job.id for job in new)
        self._asked_at = now if self._asked_at is None else self._asked_at
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

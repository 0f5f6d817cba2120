"""A claim whose answer was lost: it may have been carried out."""

from __future__ import annotations

from dataclasses import dataclass, field
from uuid import UUID

from ..job import Job
from .ledger import Ledger, Place

LATE_SECONDS = 3.0  # after which a claim that was cut short is no longer carried out by the server


@dataclass
class Unanswered:
    """A claim that was sent and may have been carried out: its token tells, once the store can be asked. A server may
    carry it out after its client is gone, so one look that finds nothing is not the last."""

    token: UUID
    queue: str
    began: float
    places: list[Place] = field(default_factory=list)  # of a queue that has a limit: its jobs may be running
    _seen: set[UUID] = field(default_factory=set)
    _asked_at: float | None = None

    def found(self, jobs: list[Job], now: float) -> list[Job]:
        """Those that were not found before."""
        new = [job for job in jobs if job.id not in self._seen]
        self._seen.update(job.id for job in new)
        self._asked_at = now if self._asked_at is None else self._asked_at
        return new

    def places_for(self, count: int, ledger: Ledger) -> list[Place]:
        """At least so many. The caller takes them out of this list."""
        self.places += ledger.take(self.queue, max(0, count - len(self.places)))
        return self.places

    def is_over(self, now: float) -> bool:
        return self._asked_at is not None and now - self._asked_at > LATE_SECONDS

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
    reserved: int = 0  # of the limit of its queue: its jobs may be claimed
    _seen: set[UUID] = field(default_factory=set)
    _asked_at: float | None = None

    def found(self, jobs: list[Job], now: float) -> list[Job]:
        """Those that were not found before."""
        new = [job for job in jobs if job.id not in self._seen]
        self._seen.update(job.id for job in new)
        self._asked_at = now if self._asked_at is None else self._asked_at
        return new

    def reserve(self, count: int, ledger: Ledger) -> None:
        """Slots are not reserved: other queues need them."""
        if self.queue in ledger.limits:
            ledger.held[self.queue] += count
            self.reserved += count

    def places_for(self, count: int, ledger: Ledger) -> list[Place]:
        self.free(count, ledger)
        return ledger.take(self.queue, count)

    def free(self, count: int, ledger: Ledger) -> None:
        """So many of the reserved ones, or all."""
        self.reserved -= (freed := min(count, self.reserved))
        ledger.held[self.queue] -= freed

    def is_over(self, now: float) -> bool:
        return self._asked_at is not None and now - self._asked_at > LATE_SECONDS

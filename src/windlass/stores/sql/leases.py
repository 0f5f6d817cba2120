"""Leases in SQL: begin attempts, renew their leases, take jobs from lost workers, cancel jobs that are too late."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

from ...job import Job
from ...lifecycle import FINISHED, RUNNING
from ...operation import Operation, Row
from ...outcome import Settlement, decide_any_rescue, decide_expiry, stagger_seconds
from ..store import Lease, Note, Refusal, Renewal
from .dependents import Dependents
from .dialect import Dialect, Part
from .settle import Settlements, in_rounds
from .status import JobStatus, Statuses, refusal_reason

# For the mark of a last attempt. The worker's other last attempts wait for it, and the worker sends it again.
BEGIN_SECONDS = 3.0


class Leases(Part):
    """Operations `begin`, `note`, `renew`, `hold`, `seize`, `anyone_lost`, `rescue` and `expire`."""

    def __init__(self, dialect: Dialect, statuses: Statuses, dependents: Dependents, settlements: Settlements) -> None:
        super().__init__(dialect)
        self.statuses, self.dependents, self.settlements = statuses, dependents, settlements

    def begin(self, leases: Sequence[Lease]) -> Operation[list[Refusal]]:
        refusals: list[Refusal] = []
        for batch in in_rounds(leases):
            rows = yield replace(self.many("begin", batch, alone=True), seconds=BEGIN_SECONDS)
            begun = {self.rows.to_uuid(row[0]) for row in rows}
            left = [lease for lease in batch if lease.id not in begun]
            statuses = (yield from self.statuses.read([lease.id for lease in left], alone=True)) if left else {}
            for lease in left:
                status = statuses.get(lease.id)
                locked = status is not None and status.token == lease.token and status.state not in FINISHED
                refusals.append(Refusal(lease.id, "locked" if locked else refusal_reason(status), lease.token))
        return refusals

    def note(self, notes: Sequence[Note]) -> Operation[None]:
        for batch in in_rounds(notes):
            yield self.many("note", batch, alone=True)

    def renew(self, leases: Sequence[Lease]) -> Operation[list[Renewal]]:
        renewals: dict[tuple[UUID, UUID], Renewal] = {}
        for batch in in_rounds(leases):
            renewals |= yield from self._renew(batch)
        return [renewals[lease.id, lease.token] for lease in leases]

    def _renew(self, leases: Sequence[Lease]) -> Operation[dict[tuple[UUID, UUID], Renewal]]:
        rows = yield self.many("renew", leases, alone=True)
        renewed = {
            (id := self.rows.to_uuid(row[0])): Renewal(id, self.rows.to_datetime(row[1]), bool(row[2])) for row in rows
        }
        left = [lease for lease in leases if lease.id not in renewed]
        if left:
            statuses = yield from self.statuses.read([lease.id for lease in left], alone=True)
            renewed |= {lease.id: self._not_renewed(lease, statuses.get(lease.id)) for lease in left}
        return {(lease.id, lease.token): renewed[lease.id] for lease in leases}

    def _not_renewed(self, lease: Lease, status: JobStatus | None) -> Renewal:
        """The lease is lost; or the row was skipped, since another transaction has locked it."""
        if status is None or status.state != RUNNING or status.token != lease.token:
            return Renewal(lease.id, None, reason=refusal_reason(status))
        return Renewal(lease.id, self.rows.to_datetime(status.leased_until), status.cancel_requested, locked=True)

    def hold(self, tokens: Sequence[UUID]) -> Operation[int]:
        rows = yield self.statement("hold", alone=True, tokens=self.array(tokens))
        return len(rows)

    def seize(self, ids: Sequence[UUID], token: UUID) -> Operation[list[Job]]:
        rows = yield self.statement("seize", ids=self.array(sorted(ids)), token=token)
        return [self.rows.job(row) for row in rows]

    # Lost workers

    def anyone_lost(self) -> Operation[bool]:
        rows = yield self.statement("find_expired", alone=True, limit=1, stale_before=None)
        return bool(rows)

    def rescue(self, limit: int, *, stale_before: datetime | None = None) -> Operation[list[Settlement]]:
        rows = yield self.statement("find_expired", alone=True, limit=limit, stale_before=stale_before)
        if rows:  # again, now with locks. Usually there are none, and the first statement was the only one
            rows = yield self.statement("find_expired", limit=limit, stale_before=stale_before)
        if not rows:
            return []
        # The new token fences the lost worker: it finds no row that it could still write.
        token = uuid4()
        over = stagger_seconds(len(rows))
        settlements = [self._decide(row, token, over) for row in rows]
        yield self.statement("take_over", ids=self.array([one.id for one in settlements]), token=token)
        refused = {refusal.id for refusal in (yield from self.settlements.settle(settlements))}
        return [settlement for settlement in settlements if settlement.id not in refused]

    def _decide(self, row: Row, token: UUID, over: float) -> Settlement:
        """The query adds `begun` after the columns of a job."""
        *of_job, begun = row
        return decide_any_rescue(
            self.rows.to_uuid(row[0]), token, lambda: self.rows.job(of_job), random=random.random,
            stagger_seconds=over, begun=begun in (None, True),
        )  # fmt: skip

    # Jobs that are too late

    def expire(self, limit: int) -> Operation[list[Settlement]]:
        rows = yield self.statement("find_too_late", alone=True, limit=limit)
        if rows:
            rows = yield self.statement("find_too_late", limit=limit)
        settlements = [decide_expiry(self.rows.to_uuid(id), self._calendar(moment)) for id, moment in rows]
        refused = (yield from self.dependents.end(settlements, alone=False)) if settlements else set()
        return [settlement for settlement in settlements if settlement.id not in refused]

    def _calendar(self, moment: Any) -> datetime | None:
        """None for a value outside the calendar, such as PostgreSQL's -infinity: one such row must not stop others."""
        try:
            return self.rows.to_datetime(moment)
        except (ValueError, OverflowError):
            return None

"""Attempts in SQL, from claim to settlement: claim, begin, renew, settle; rescue from lost workers, end if too late."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any, TypeVar
from uuid import UUID, uuid4

import msgspec

from ...job import Job
from ...lifecycle import CANCELLED, FINISHED, PENDING, RUNNING
from ...operation import Operation, Row, Rows, Statement
from ...outcome import Settlement, decide_any_rescue, decide_expiry, stagger_seconds
from ...policy import Policy
from ..store import ClaimRequest, HandedOver, Lease, Note, Refusal, Renewal, may_be_handed_over
from .dependents import Dependents
from .dialect import Dialect, Part
from .status import JobStatus, Statuses, refusal_reason

S = TypeVar("S", Settlement, Lease, Note)

START = {"after_rank": -32768, "after_run_at": datetime(1, 1, 1, tzinfo=UTC), "after_id": UUID(int=0)}
# For the mark of a last attempt. The worker's other last attempts wait for it, and the worker sends it again.
BEGIN_SECONDS = 3.0


class Claims(Part):
    """Operations `claim` and `adopt`."""

    def __init__(self, dialect: Dialect) -> None:
        super().__init__(dialect)
        self._encoded: tuple[Mapping[str, Policy], Policy, str] = ({}, Policy(), "")

    def claim(self, request: ClaimRequest) -> Operation[list[Job]]:
        parameters = self._parameters(request)
        parts = self.dialect.claim_parts(request)
        rows = yield self._variant("claim", parameters, parts)
        if not rows and request.prefetch:
            found = yield self._variant("look_past", parameters)
            if found:
                rows = yield self._variant("claim", parameters | self._just_before(found[0]), parts)
        return self.rows.claimed(self._in_order(rows), request.queue, request.worker)

    def _parameters(self, request: ClaimRequest) -> dict[str, Any]:
        parameters: dict[str, Any] = {
            "queue": request.queue,
            "limit": request.limit,
            "token": request.token,
            "worker": request.worker,
            "lease_seconds": request.lease_seconds,
            "policies": self._policies_json(request),
            "max_bytes": request.max_bytes,
            "prefetch": request.prefetch,
            "begun": request.begun,
            **START,
        }
        if request.after is not None:
            after = request.after
            parameters |= {"after_rank": after.rank, "after_run_at": after.run_at, "after_id": after.id}
        if request.types is not None:
            parameters["types"] = self.array(request.types)
        if request.order_key is not None:
            parameters["order_key"] = request.order_key
            if request.tenant is not None:
                parameters["tenant"] = request.tenant
        return parameters

    def _policies_json(self, request: ClaimRequest) -> str:
        """The policies of all tasks. They are cached: an app passes the same object each time, until it gets a new task
        and makes a new object."""
        policies, default, encoded = self._encoded
        if request.policies is not policies or request.default_policy is not default:
            by_type = {type: policy.to_json() for type, policy in request.policies.items()}
            by_type[""] = request.default_policy.to_json()
            encoded = msgspec.json.encode(by_type).decode()
            self._encoded = request.policies, request.default_policy, encoded
        return encoded

    def _variant(self, name: str, parameters: dict[str, Any], parts: Mapping[str, str] | None = None) -> Statement:
        """The query with the conditions that these parameters ask for."""
        typed = "{typed}" if "types" in parameters else ""
        keyed = "AND j.lane = 2 AND j.order_key = :order_key" if "order_key" in parameters else ""
        keyed += " AND j.tenant = :tenant" if "tenant" in parameters else ""
        query = self.queries.library.variant(name, of_types=f"{typed} {keyed}", **(parts or {}))
        return Statement(query, parameters, alone=True)

    def _just_before(self, row: Row) -> dict[str, Any]:
        """The position from which a claim meets this job first."""
        rank, run_at, id = row
        moment, before = self.rows.to_datetime(run_at), UUID(int=self.rows.to_uuid(id).int - 1)
        return {"after_rank": rank, "after_run_at": moment, "after_id": before}

    def adopt(self, token: UUID) -> Operation[list[Job]]:
        rows = yield self.statement("adopt", alone=True, token=token)
        return [self.rows.job(row) for row in rows]

    def _in_order(self, rows: Rows) -> Rows:
        """Claimed rows by rank, time and id, since RETURNING has no order. Usually they are in this order already."""
        try:
            return sorted(rows, key=self.rows.claim_order)
        except TypeError:
            return rows  # a row that someone wrote by hand must not stop the others


class Settlements(Part):
    """Operations `settle` and `hand_over`; `end`, also for jobs that are cancelled or expire."""

    def __init__(self, dialect: Dialect, statuses: Statuses, dependents: Dependents) -> None:
        super().__init__(dialect)
        self.statuses, self.dependents = statuses, dependents

    def settle(self, settlements: Sequence[Settlement]) -> Operation[list[Refusal]]:
        rounds = in_rounds(settlements)
        refusals = []
        for batch in rounds:
            refusals += yield from self._settle(batch, alone=len(rounds) == 1)
        return refusals

    def _settle(self, settlements: Sequence[Settlement], *, alone: bool) -> Operation[list[Refusal]]:
        ending = [settlement for settlement in settlements if settlement.state in FINISHED]
        returning = [settlement for settlement in settlements if settlement.state == PENDING]
        refused: set[UUID] = set()
        if ending:
            refused |= yield from self.end(ending, alone=alone and not returning)
        if returning:
            refused |= yield from self._send_back(returning)
        if not refused:
            return []
        left = [one for one in settlements if one.id in refused]
        return (yield from self._explain(left, alone=alone and not returning))

    def end(self, settlements: Sequence[Settlement], *, alone: bool) -> Operation[set[UUID]]:
        """Finish jobs; the ids of the jobs that were refused. One statement ends all jobs without dependents, as most
        jobs are. They need no lock but that of their own row. The others, which may wait for locks, follow."""
        plain = [one for one in settlements if one.continues is None or self.dialect.finish_adds(one.continues)]
        refused = (yield from self.dialect.finish(plain, alone=alone)) if plain else set()
        if len(plain) == len(settlements) and not refused:
            return set()
        tried = {one.id for one in plain}
        suspects = [one for one in settlements if one.id not in tried or one.id in refused]
        return (yield from self.dependents.end_skipped(suspects, alone=alone))

    def _send_back(self, settlements: Sequence[Settlement]) -> Operation[set[UUID]]:
        rows = yield self.many("release", settlements)
        released = {self.rows.to_uuid(row[0]) for row in rows}
        left = [settlement for settlement in settlements if settlement.id not in released]
        if not left:
            return set()
        # A job that someone asked to cancel does not become pending again: it ends here.
        statuses = yield from self.statuses.read([settlement.id for settlement in left])
        cancelled = [
            msgspec.structs.replace(settlement, state=CANCELLED)
            for settlement in left
            if (status := statuses.get(settlement.id)) and status.cancel_requested and status.token == settlement.token
        ]
        refused = (yield from self.end(cancelled, alone=False)) if cancelled else set()
        return refused | {one.id for one in left} - {one.id for one in cancelled}

    def _explain(self, settlements: Sequence[Settlement], *, alone: bool) -> Operation[list[Refusal]]:
        """The reasons. A settlement that was sent before and accepted is found again, and is no refusal."""
        statuses = yield from self.statuses.read([settlement.id for settlement in settlements], alone=alone)
        refusals = []
        for settlement in settlements:
            status = statuses.get(settlement.id)
            if status is None or not status.has_accepted(settlement):
                refusals.append(Refusal(settlement.id, refusal_reason(status), settlement.token))
        return refusals

    def hand_over(self, settlement: Settlement, token: UUID, worker: str) -> Operation[HandedOver]:
        job = yield from self.dialect.hand_over(settlement, token, worker)
        if job is not None:
            return HandedOver([], job)
        refusals = yield from self._settle([settlement], alone=False)
        if refusals or settlement.continues is None or not may_be_handed_over(settlement.continues):
            return HandedOver(refusals)
        rows = yield self.statement("take", id=settlement.continues.id, token=token, worker=worker)
        return HandedOver([], self.rows.job(rows[0]) if rows else None)


class Leases(Part):
    """Operations `begin`, `note`, `renew`, `hold`, `seize`, `anyone_lost`, `rescue` and `expire`."""

    def __init__(self, dialect: Dialect, statuses: Statuses, settlements: Settlements) -> None:
        super().__init__(dialect)
        self.statuses, self.settlements = statuses, settlements

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
        refused = (yield from self.settlements.end(settlements, alone=False)) if settlements else set()
        return [settlement for settlement in settlements if settlement.id not in refused]

    def _calendar(self, moment: Any) -> datetime | None:
        """None for a value outside the calendar, such as PostgreSQL's -infinity: one such row must not stop others."""
        try:
            return self.rows.to_datetime(moment)
        except (ValueError, OverflowError):
            return None


def in_rounds(items: Sequence[S]) -> list[list[S]]:
    """In id order, and in rounds in which no job is named twice: a worker may settle two attempts of one job."""
    by_id = {item.id.int: item for item in items}  # to compare integers is quicker than to compare UUIDs
    if len(by_id) == len(items):
        return [[by_id[id] for id in sorted(by_id)]] if items else []
    left = sorted(items, key=attrgetter("id.int"))
    rounds: list[list[S]] = []
    while left:
        first: dict[int, S] = {}
        for item in left:
            first.setdefault(item.id.int, item)
        rounds.append(list(first.values()))
        left = [item for item in left if first[item.id.int] is not item] if len(first) < len(left) else []
    return rounds

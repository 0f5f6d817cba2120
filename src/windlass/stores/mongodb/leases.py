"""Leases: begin attempts, renew their leases, take jobs from lost workers, cancel jobs that are too late."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from uuid import UUID, uuid4

from pymongo import UpdateMany, UpdateOne

from ...job import Job
from ...lifecycle import BLOCKED, FINISHED, PENDING, RUNNING, State
from ...operation import Operation, Request
from ...outcome import Settlement, decide_any_rescue, decide_expiry, stagger_seconds
from ..store import Lease, Note, Reason, Refusal, Renewal
from .context import BRIEF, Context, Part
from .documents import Document, to_key
from .settle import Settlements
from .skip_locked import plainly_or_by_halves

EXPIRING: dict[State, str] = {PENDING: "expiring", BLOCKED: "expiring_blocked"}  # the index of each


class Leases(Part):
    """Operations `begin`, `note`, `renew`, `hold`, `seize`, `anyone_lost`, `rescue` and `expire`."""

    def __init__(self, context: Context, settlements: Settlements) -> None:
        super().__init__(context)
        self.settlements = settlements

    def begin(self, leases: Sequence[Lease]) -> Operation[list[Refusal]]:
        if not leases:
            return []
        counts, locked = yield from plainly_or_by_halves(leases, self._begin)
        if sum(counts) == len(leases):
            return []
        ids = list({lease.id for lease in leases})
        rows = yield self.context.find_jobs({"_id": {"$in": ids}}, {"token": 1, "state": 1}, size=len(ids))
        documents = {row["_id"]: row for row in rows}
        reasons = [(lease, why_lost(lease, documents.get(lease.id))) for lease in leases if lease not in locked]
        refused = [Refusal(lease.id, "locked", lease.token) for lease in locked]
        return refused + [Refusal(lease.id, reason, lease.token) for lease, reason in reasons if reason is not None]

    def _begin(self, leases: Sequence[Lease]) -> Operation[int]:
        writes = [UpdateOne(fence_of(lease), {"$set": {"begun": True}}, hint="_id_") for lease in leases]
        (result,) = yield Request(self.context.jobs, "bulk_write", (writes,), {"ordered": False})
        return int(result.matched_count)

    def note(self, notes: Sequence[Note]) -> Operation[None]:
        yield from plainly_or_by_halves(notes, self._note)  # progress of locked jobs is written with the next notes

    def _note(self, notes: Sequence[Note]) -> Operation[None]:
        writes = [UpdateOne(fence_of(note), {"$set": {"progress": note.progress}}, hint="_id_") for note in notes]
        yield Request(self.context.jobs, "bulk_write", (writes,), {"ordered": False})

    def renew(self, leases: Sequence[Lease]) -> Operation[list[Renewal]]:
        if not leases:
            return []
        _, locked = yield from plainly_or_by_halves(leases, self._renew)
        ids = list({lease.id for lease in leases})
        projection = dict.fromkeys(("token", "state", "leased_until", "cancel_requested"), 1)
        rows = yield self.context.find_jobs({"_id": {"$in": ids}}, projection, size=len(ids))
        documents = {row["_id"]: row for row in rows}
        return [renewal_of(lease, documents.get(lease.id), locked=lease in locked) for lease in leases]

    def _renew(self, leases: Sequence[Lease]) -> Operation[None]:
        groups: defaultdict[tuple[UUID, float, str | None], list[UUID]] = defaultdict(list)
        for lease in leases:
            groups[lease.token, lease.seconds, lease.progress].append(lease.id)
        writes = [
            UpdateMany(
                {"_id": {"$in": ids}, "token": token, "state": RUNNING}, self._renewed(seconds, progress), hint="_id_"
            )
            for (token, seconds, progress), ids in groups.items()
        ]
        yield Request(self.context.jobs, "bulk_write", (writes,), {"ordered": False})

    def hold(self, tokens: Sequence[UUID]) -> Operation[int]:
        if not tokens:
            return 0
        held = {"state": RUNNING, "token": {"$in": [*tokens]}}
        found = yield Request(self.context.jobs, "find", (held, {"_id": 1}), {"batch_size": 10_000}, alone=True)
        change = self._renewed("$lease_seconds")
        counts, _ = yield from plainly_or_by_halves(
            [row["_id"] for row in found], lambda ids: self._write(ids, held, change)
        )
        return sum(counts)

    def _write(self, ids: Sequence[UUID], which: Document, change: Document | list[Document]) -> Operation[int]:
        """Change those of these jobs that still match the filter; their number."""
        filter = {**which, "_id": {"$in": [to_key(id) for id in ids]}}
        (result,) = yield Request(self.context.jobs, "update_many", (filter, change), {"hint": "_id_"})
        return int(result.matched_count)

    def _renewed(self, seconds: float | str, progress: str | None = None) -> list[Document]:
        """`seconds`: a number, or the name of the field that has it."""
        now = self.context.now_expression
        until = {"$add": [now, {"$multiply": [seconds, 1000]}]}
        changes: Document = {"leased_until": {"$ifNull": [until, "$leased_until"]}, "heard_at": now}
        if progress is not None:
            changes["progress"] = {"$literal": progress}
        return [{"$set": changes}]

    def seize(self, ids: Sequence[UUID], token: UUID) -> Operation[list[Job]]:
        filter = {"_id": {"$in": list(ids)}, "state": RUNNING}
        change = {"$set": {"token": token}, "$unset": {"worker": ""}}
        yield Request(self.context.jobs, "update_many", (filter, change))
        rows = yield Request(self.context.jobs, "find", ({**filter, "token": token},))
        return [self.context.documents.to_job(row) for row in rows]

    def anyone_lost(self) -> Operation[bool]:
        lost = {"state": RUNNING, "$expr": {"$lte": ["$leased_until", self.context.now_expression]}}
        rows = yield Request(self.context.jobs, "find", (lost, {"_id": 1}), {"limit": 1}, alone=True)
        return bool(rows)

    def rescue(self, limit: int, *, stale_before: datetime | None = None) -> Operation[list[Settlement]]:
        if limit < 1:
            return []
        lost: Document = {"$expr": {"$lte": ["$leased_until", self.context.now_expression]}}
        if stale_before is not None:
            # A worker that has not renewed yet was alive when it claimed.
            before = {"$lt": stale_before}
            lost = {"$or": [{"heard_at": before}, {"heard_at": None, "claimed_at": before}]}
        documents, token = yield from self._take_over({"state": RUNNING, **lost}, limit)
        over = stagger_seconds(len(documents))
        settlements = [self._decide(document, token, over) for document in documents]
        refused = {refusal.id for refusal in (yield from self.settlements.settle(settlements))}
        return [settlement for settlement in settlements if settlement.id not in refused]

    def _take_over(self, lost: Document, limit: int) -> Operation[tuple[Sequence[Document], UUID]]:
        """Write a new token on the jobs that are still lost. It fences the lost worker. Jobs that another transaction
        has locked are left alone. This is outside of the settlement's transaction: the server would keep the locks of a
        rescuer that is killed in a transaction for a minute. This way its jobs are as lost as before, and the next
        rescuer takes them."""
        token = uuid4()
        options = {"limit": limit, "batch_size": limit + 1}
        found = yield Request(self.context.jobs, "find", (lost, {"_id": 1}), options, alone=True)
        if not found:
            return [], token
        ids = [document["_id"] for document in found]
        yield from plainly_or_by_halves(ids, lambda some: self._write(some, lost, {"$set": {"token": token}}))
        taken = yield self.context.find_jobs({"_id": {"$in": ids}, "state": RUNNING, "token": token}, size=len(found))
        return taken, token

    def expire(self, limit: int) -> Operation[list[Settlement]]:
        if limit < 1:
            return []
        now = yield from self.context.read_now()
        # Usually there is none: then no transaction is begun for it.
        if not (yield from self._too_late(now, 1, alone=True)):
            return []
        found = yield from self._too_late(now, limit)
        settlements = [decide_expiry(document["_id"], document["expires_at"]) for document in found]
        yield from self.settlements.write_endings(zip(settlements, found, strict=True), now)
        return settlements

    def _too_late(self, now: datetime, limit: int, *, alone: bool = False) -> Operation[list[Document]]:
        """Jobs that were not started in time. In the operation's transaction, a claim or a replacement of one of them
        by others makes the operation start again."""
        found: list[Document] = []
        for state, index in EXPIRING.items():
            filter, left = {"state": state, "expires_at": {"$lte": now}}, limit - len(found)
            options = {"sort": [("expires_at", 1)], "limit": left, "batch_size": left + 1, "hint": index}
            if left:
                found += yield Request(self.context.jobs, "find", (filter, BRIEF), options, alone)
        return found

    def _decide(self, document: Document, token: UUID, over: float) -> Settlement:
        return decide_any_rescue(
            document["_id"], token, lambda: self.context.documents.to_job(document), random=random.random,
            stagger_seconds=over, begun=document.get("begun", True),
        )  # fmt: skip


def fence_of(one: Lease | Note) -> Document:
    return {"_id": one.id, "token": one.token, "state": RUNNING}


def why_lost(lease: Lease, document: Document | None) -> Reason | None:
    """None: the lease is not lost."""
    if document is None:
        return "not found"
    if document["state"] == RUNNING and document.get("token") == lease.token:
        return None
    return "already finished" if document["state"] in FINISHED else "taken by another"


def renewal_of(lease: Lease, document: Document | None, *, locked: bool = False) -> Renewal:
    reason = why_lost(lease, document)
    if document is None or reason is not None:
        return Renewal(lease.id, None, reason=reason)
    return Renewal(lease.id, document["leased_until"], document.get("cancel_requested", False), locked=locked)

"""Settling attempts: the jobs are read, judged and written; each write is fenced.

Each settlement is atomic, since it is one write to one document. So a batch needs no transaction, which would cost four
times as much. If a batch is cut short, the settlements that were written are recognised when it is sent again. A job
that has changed between the read and the write is judged again. Three kinds of settlement need a transaction: those
without a token, since they cannot be told from the writes of others; cancelled and expired jobs; and jobs with
dependents.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from bson import ObjectId
from bson.binary import Binary
from pymongo import ReturnDocument

from ...lifecycle import FINISHED, PENDING, RUNNING, State
from ...operation import Operation, Request, Transient
from ...outcome import Settlement, was_accepted
from ...policy import kept_seconds
from ..store import HandedOver, Refusal, may_be_handed_over
from .context import Brief, Context, Part
from .dependents import Dependents, Judged, has_dependents
from .documents import Document, round_up, to_key
from .settlement_writes import Ending, Member, ending_of, final_state, foresee, judge, purge_moment, writes_of
from .tallies import Slot, Tallies, slot_of

AT_ONCE = 10_000  # settlements; their ids must fit into one document
ROUNDS = 8  # for jobs that change after each read
SETTLED_BY = dict.fromkeys(("queue", "type", "keep_seconds", "cancel_requested", "linked", "lane", "blockers_left"), 1)

Groups = dict[Ending, list[Member]]


class Settlements(Part):
    """Operations `settle` and `hand_over`."""

    def __init__(self, context: Context, dependents: Dependents, tallies: Tallies) -> None:
        super().__init__(context)
        self.dependents, self.tallies = dependents, tallies

    def settle(self, settlements: Sequence[Settlement]) -> Operation[list[Refusal]]:
        refusals: list[Refusal] = []
        for start in range(0, len(settlements), AT_ONCE):
            part = settlements[start : start + AT_ONCE]
            by_token = all(settlement.token is not None for settlement in part)
            refusals += yield from (self._settle_each(part) if by_token else self._settle_together(part))
        return refusals

    def hand_over(self, settlement: Settlement, token: UUID, worker: str) -> Operation[HandedOver]:
        job = settlement.continues
        wanted = job is not None and may_be_handed_over(job)
        now = (yield from self.context.open_at(job.queue)) if job is not None and wanted else None
        refusals = yield from self._settle_together([settlement])
        if refusals or job is None or now is None:
            return HandedOver(refusals)
        ends = round_up(now + timedelta(seconds=job.lease_seconds or 0))
        changes = {"state": RUNNING, "token": token, "worker": worker, "claimed_at": now, "leased_until": ends}
        fresh = {"_id": job.id, "state": PENDING, "attempt": 0}
        options = {"return_document": ReturnDocument.AFTER}
        update = {"$set": changes, "$inc": {"attempt": 1}}
        found = yield Request(self.context.jobs, "find_one_and_update", (fresh, update), options)
        return HandedOver([], self.context.documents.to_job(found[0]) if found[0] is not None else None)

    # In a transaction

    def _settle_together(self, settlements: Sequence[Settlement]) -> Operation[list[Refusal]]:
        documents, now = yield from self.context.read_brief(settlement.id for settlement in settlements)
        accepted, refusals = judge_all(settlements, documents)
        yield from self.write_endings(accepted, now)
        return refusals

    def write_endings(self, accepted: Iterable[Judged], now: datetime) -> Operation[None]:
        """Write the accepted settlements, and count them."""
        judged = [*accepted]
        while judged:  # the end of a job may cancel others, which end the same way
            groups, slots = grouped(judged, now)
            writes = writes_of(groups, now)
            (result,) = yield Request(self.context.jobs, "bulk_write", (writes,), {"ordered": False})
            if result.matched_count + result.deleted_count != sum(map(len, groups.values())):
                raise Transient("a job changed while it was being settled")
            yield from self.tallies.add({slot: len(ids) for slot, ids in slots.items()})
            judged = yield from self.dependents.after_end([one for one in judged if has_dependents(*one)], now)

    # Without one

    def _settle_each(self, settlements: Sequence[Settlement]) -> Operation[list[Refusal]]:
        refusals: list[Refusal] = []
        left = settlements
        for _ in range(ROUNDS):
            accepted, refused, now = yield from self._judge(left)
            refusals += refused
            plain, together = parted(accepted)
            left = (yield from self._write_each(plain, now)) if plain else []
            if together:
                return refusals + (yield from self._settle_together([*left, *together]))
            if not left:
                return refusals
        raise Transient("a job changed whenever it was being settled")

    def _judge(self, settlements: Sequence[Settlement]) -> Operation[tuple[list[Judged], list[Refusal], datetime]]:
        """Usually all jobs run with the token of their settlement: then a few fields are enough. Otherwise more are
        read."""
        ids = [settlement.id for settlement in settlements]
        tokens = {settlement.token for settlement in settlements}
        filter = {"_id": {"$in": [to_key(id) for id in ids]}, "token": {"$in": [*tokens]}, "state": RUNNING}
        now = {"$cond": [{"$eq": ["$_id", ids[0]]}, "$$NOW", "$$REMOVE"]}  # in one document is enough
        projection = {**SETTLED_BY, "now": now} | ({"token": 1} if len(tokens) > 1 else {})
        options = {"batch_size": len(ids) + 1, "hint": "_id_"}
        rows = yield Request(self.context.jobs, "find", (filter, projection), options, alone=True)
        documents = {row["_id"]: row for row in rows}
        if len(rows) == len(ids) and (
            len(tokens) == 1 or all(documents[one.id]["token"] == one.token for one in settlements)
        ):
            accepted = [(settlement, documents[settlement.id]) for settlement in settlements]
            return accepted, [], self.context.by_our_clock(documents[ids[0]]["now"])
        documents, moment = yield from self.context.read_brief(ids, alone=True)
        return *judge_all(settlements, documents), moment

    def _write_each(self, accepted: Sequence[Judged], now: datetime) -> Operation[list[Settlement]]:
        """The settlements that could not be written, since their job has changed."""
        groups, slots = grouped(accepted, now)
        mark = ObjectId()
        announced = yield from self.tallies.announce(slots, mark, now)
        writes = writes_of(groups, now, mark=mark)
        (result,) = yield Brief(self.context.jobs, "bulk_write", (writes,), {"ordered": False}, alone=True)
        if result.matched_count + result.deleted_count == len(accepted):
            yield from self.tallies.confirm(announced)
            return []
        documents, _ = yield from self.context.read_brief((settlement.id for settlement, _ in accepted), alone=True)
        # The mark tells our writes from those of a client that sends the same in the same millisecond.
        written = documents.items() if result.matched_count else ()
        ours = {id for id, document in written if document.get("counted_by") == mark}
        each = [[id for key in ids if (id := key.as_uuid()) in ours] for ids in slots.values()]
        yield from self.tallies.correct(dict(zip(announced, each, strict=True)), alone=True)
        return missed(accepted, documents, result.deleted_count)


def judge_all(settlements: Sequence[Settlement], documents: dict[UUID, Document]) -> tuple[list[Judged], list[Refusal]]:
    """One after the other: each settlement sees the job as the one before leaves it."""
    accepted: list[Judged] = []
    refusals: list[Refusal] = []
    for settlement in settlements:
        document = documents.get(settlement.id)
        match judge(settlement, document):
            case "accepted" if document is not None:
                accepted.append((settlement, dict(document)))
                foresee(settlement, document)
            case "taken by another" | "not found" | "already finished" as reason:
                refusals.append(Refusal(settlement.id, reason, settlement.token))
    return accepted, refusals


def parted(accepted: list[Judged]) -> tuple[list[Judged], list[Settlement]]:
    """The settlements that can be written one by one, and those that need a transaction. Jobs with keep=0 go with the
    latter: a deleted job could not be recognised if the transaction has to be repeated."""
    if not any(has_dependents(*one) for one in accepted):
        return accepted, []
    together = [one for one, document in accepted if has_dependents(one, document) or leaves_no_trace(one, document)]
    rest = {id(one) for one in together}
    return [one for one in accepted if id(one[0]) not in rest], together


def leaves_no_trace(settlement: Settlement, document: Document) -> bool:
    return final_state(settlement, document) in FINISHED and document.get("keep_seconds") == 0


def grouped(accepted: Iterable[Judged], now: datetime) -> tuple[Groups, dict[Slot, list[Binary]]]:
    """The settlements by the change that they make; and the jobs that are kept by the tally that counts them."""
    groups: defaultdict[Ending, list[Member]] = defaultdict(list)
    kinds: defaultdict[tuple[str, str, State, int | None], list[Binary]] = defaultdict(list)
    for settlement, document in accepted:
        ending, id = ending_of(settlement, document), to_key(settlement.id)
        groups[ending].append(Member(id, settlement.output, settlement.progress))
        if ending.keep_seconds != 0 and ending.state in FINISHED:
            kinds[document.get("queue", ""), document.get("type", ""), ending.state, ending.keep_seconds].append(id)
    slots: dict[Slot, list[Binary]] = {}
    for (queue, type, state, keep_seconds), ids in kinds.items():
        purge_at = purge_moment(kept_seconds(keep_seconds, state), now)
        slots.setdefault(slot_of(queue, type, state, purge_at, keep_seconds), []).extend(ids)
    return groups, slots


def missed(accepted: Sequence[Judged], documents: dict[UUID, Document], deleted: int) -> list[Settlement]:
    """The settlements whose job does not show that they were written. A job with keep=0 that is gone was deleted by
    this batch, unless more jobs are gone than it has deleted."""
    left: list[Settlement] = []
    gone: list[Settlement] = []
    for settlement, _ in accepted:
        document = documents.get(settlement.id)
        if document is None:
            gone.append(settlement)
        elif not was_accepted(
            settlement,
            state=document["state"],
            token=document.get("token"),
            previous_token=document.get("previous_token"),
        ):
            left.append(settlement)
    return left if len(gone) == deleted else left + gone

"""Dependents of a job that ends: the next job of its chain, jobs that wait for the chain, the next of its order key.

All of them are written in the transaction that ends the job. Admission of a waiting job writes on the last job of the
chain and on the waiting job. The end of the chain writes on both, too. So if the two happen at once, one meets a write
conflict, tries again, and sees the other.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeAlias
from uuid import UUID

from pymongo import UpdateMany

from ...job import NewJob
from ...lifecycle import BLOCKED, COMPLETED, FINISHED, PENDING
from ...operation import Operation, Request
from ...outcome import Settlement, decide_blocked
from ..blockers import refuse_taken
from ..store import Failure
from ..wakeup import Hint
from .context import BRIEF, Context, Part
from .documents import HEAD, Document, chain_of, order_key_of
from .enqueue import Enqueue
from .order_keys import OrderKeys
from .settlement_writes import final_state

WAITS_BY = dict.fromkeys(("state", "queue", "blockers_left", "lane"), 1)

Judged: TypeAlias = tuple[Settlement, Document]
Ends: TypeAlias = Mapping[UUID, str | None]  # the outputs of completed chains


class Dependents(Part):
    def __init__(self, context: Context, enqueue: Enqueue, order_keys: OrderKeys) -> None:
        super().__init__(context)
        self.enqueue, self.order_keys = enqueue, order_keys

    def after_end(self, ended: Sequence[Judged], now: datetime) -> Operation[list[Judged]]:
        """These jobs have ended in this transaction: update their dependents. The answer: the jobs that have to be
        cancelled in turn, since they wait for a chain that has failed."""
        if not ended:
            return []
        queues = yield from self._continue_chains(ended)
        last = [(one, document) for one, document in ended if one.continues is None and document.get("linked")]
        completed = {chain_of(document): one.output for one, document in last if one.state == COMPLETED}
        queues |= yield from self._unblock(completed, now)
        failures = [failure(*one) for one in last if final_state(*one) != COMPLETED]
        cancelled, freed = yield from self.fail(failures, now)
        queues |= freed
        queues |= yield from self.order_keys.promote(
            {order_key_of(document) for _, document in ended if document.get("lane") == HEAD}
        )
        chains = {chain_of(document) for _, document in last}
        yield from self.context.hint([Hint("finished", str(chain)) for chain in chains])
        yield from self.context.hint([Hint("ready", queue) for queue in queues])
        return cancelled

    def fail(self, failures: Sequence[Failure], now: datetime) -> Operation[tuple[list[Judged], set[str]]]:
        """Apply `if_failed` of the jobs that wait for these chains: the jobs that have to be cancelled, and the queues
        of the jobs that are free now."""
        failed = {one.chain_id: one for one in failures}
        filter = {"chain_id": {"$in": [*failed]}, "done": False}
        edges = (yield Request(self.context.edges, "find", (filter, {"job": 1, "chain_id": 1}))) if failed else ()
        if not edges:
            return [], set()
        waiting = {"_id": {"$in": [*{edge["job"] for edge in edges}]}, "state": BLOCKED, "if_failed": {"$ne": None}}
        documents = yield self.context.find_jobs(waiting, BRIEF, size=len(edges), alone=False)
        yield from self._collide(documents)
        admitted = {document["_id"]: document for document in documents if "blockers_left" in document}
        blocker = {edge["job"]: failed[edge["chain_id"]] for edge in edges}
        cancelled = [
            (decide_blocked(id, blocker[id].id, blocker[id].type, blocker[id].state), document)
            for id, document in admitted.items()
            if document["if_failed"] == "cancel"
        ]
        running = [id for id, document in admitted.items() if document["if_failed"] == "run"]
        if not running:
            return cancelled, set()
        change = {"$set": {"done": True, "failed": True}}
        yield Request(self.context.edges, "update_many", ({**filter, "job": {"$in": running}}, change))
        fewer = Counter(edge["job"] for edge in edges)
        left = [(admitted[id], admitted[id]["blockers_left"] - fewer[id]) for id in running]
        return cancelled, (yield from self.write_left(left, now))

    def _collide(self, documents: Iterable[Document]) -> Operation[None]:
        """Jobs that are not admitted yet are left to their admission. A write on them conflicts with an admission that
        runs at the same time."""
        arriving = [document["_id"] for document in documents if "blockers_left" not in document]
        if arriving:
            yield Request(self.context.jobs, "update_many", ({"_id": {"$in": arriving}}, {"$inc": {"revision": 1}}))

    def _continue_chains(self, ended: Iterable[Judged]) -> Operation[set[str]]:
        """Add the next jobs of their chains. Jobs that wait for such a chain wait for its next job now."""
        following = [(one.continues, document) for one, document in ended if one.continues is not None]
        if not following:
            return set()
        jobs: list[NewJob] = [new for new, _ in following]
        added = yield from self.enqueue.enqueue(jobs)
        refuse_taken(jobs, added)
        linked = [
            answer.job.id for answer, (_, document) in zip(added, following, strict=True) if document.get("linked")
        ]
        if linked:
            yield Request(self.context.jobs, "update_many", ({"_id": {"$in": linked}}, {"$inc": {"linked": 1}}))
        return {answer.job.queue for answer in added}

    def _unblock(self, ends: Ends, now: datetime) -> Operation[set[str]]:
        """The queues of the jobs that wait for no other chain now."""
        filter = {"chain_id": {"$in": [*ends]}, "done": False}
        edges = (yield Request(self.context.edges, "find", (filter, {"job": 1, "chain_id": 1}))) if ends else ()
        if not edges:
            return set()
        yield from self.mark_done({edge["chain_id"]: ends[edge["chain_id"]] for edge in edges}, {})
        fewer = Counter(edge["job"] for edge in edges)
        waiting = {"_id": {"$in": [*fewer]}, "state": BLOCKED}
        documents = yield self.context.find_jobs(waiting, WAITS_BY, size=len(fewer), alone=False)
        yield from self._collide(documents)
        left = [
            (document, document["blockers_left"] - fewer[document["_id"]])
            for document in documents
            if "blockers_left" in document
        ]
        return (yield from self.write_left(left, now))

    def mark_done(self, ends: Ends, which: Document) -> Operation[None]:
        """The output is copied to the edges, so that it outlives the job."""
        by_output: defaultdict[str | None, list[UUID]] = defaultdict(list)
        for chain, output in ends.items():
            by_output[output].append(chain)
        writes = [
            UpdateMany(
                {"chain_id": {"$in": chains}, "done": False, **which}, {"$set": {"done": True, "output": output}}
            )
            for output, chains in by_output.items()
        ]
        if writes:
            yield Request(self.context.edges, "bulk_write", (writes,), {"ordered": False})

    def write_left(self, left: Iterable[tuple[Document, int]], now: datetime) -> Operation[set[str]]:
        """Write the number of chains that each job still waits for; the queues of the jobs that are free."""
        groups: defaultdict[tuple[int, bool], list[UUID]] = defaultdict(list)
        queues: set[str] = set()
        for document, count in left:
            groups[count, "lane" in document].append(document["_id"])
            if not count:
                queues.add(document["queue"])
        writes = [
            UpdateMany({"_id": {"$in": ids}}, loosened(count, ordered, now)) for (count, ordered), ids in groups.items()
        ]
        if writes:
            yield Request(self.context.jobs, "bulk_write", (writes,), {"ordered": False})
        return queues


def failure(settlement: Settlement, document: Document) -> Failure:
    state = final_state(settlement, document)
    return Failure(chain_of(document), settlement.id, document.get("type", ""), state)


def has_dependents(settlement: Settlement, document: Document) -> bool:
    """Whether other jobs depend on this end of the job."""
    if settlement.continues is None and "linked" not in document and "lane" not in document:
        return False
    return final_state(settlement, document) in FINISHED


def loosened(left: int, ordered: bool, now: datetime) -> Document:
    """The change on a blocked job that now waits for so many chains. A job that is free is not due before now."""
    changes: dict[str, Any] = {"blockers_left": left}
    if left:
        return {"$set": changes, "$unset": {"arriving": ""}, "$inc": {"revision": 1}}
    changes["state"] = PENDING
    update: Document = {"$set": changes, "$max": {"due_at" if ordered else "run_at": now}, "$inc": {"revision": 1}}
    if ordered:
        changes["arriving"] = "in line"
    else:
        update["$unset"] = {"arriving": ""}
    return update

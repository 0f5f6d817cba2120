"""Letting in what has arrived: due jobs into the lines of their order keys, and those that wait for others.

Neither holds anybody up for long. Lines are written one document at a time. What a job waits for is linked the same
way, before the transaction that decides: that one writes on the waiting jobs first, and on little else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any
from uuid import UUID

from ...lifecycle import BLOCKED, CANCELLED, COMPLETED, FAILED, LIVE, PENDING
from ...operation import Operation, Request
from ..store import Admitted, Blocker, Failure
from ..wakeup import Hint
from .chains import last_of_each
from .documents import chain_of
from .entangled import WAITS_BY
from .settle import Settlements

LINK = {"$inc": {"linked": 1}}  # each time anew: whoever settles the job at this moment must collide with it
ENDS_BY = dict.fromkeys(("state", "chain_id", "chain_index", "linked", "type"), 1)


class Admission(Settlements):
    def admit(self, limit: int) -> Operation[Admitted]:
        options: dict[str, Any] = {"limit": limit, "batch_size": limit + 1, "hint": "arriving"}
        due = {"arriving": "in line", "state": PENDING, **self.due_by_now}
        by_arrival = {**options, "sort": [("due_at", 1), ("arrival", 1)]}
        arriving = yield Request(self.jobs, "find", (due, {"tenant": 1, "order_key": 1}), by_arrival, alone=True)
        waiting = {"arriving": "blocked", "state": BLOCKED}
        blocked = yield Request(self.jobs, "find", (waiting, {"_id": 1}), options, alone=True)
        queues = (yield from self.line_up(arriving)) if arriving else set()
        if blocked:
            # A transaction that has to be repeated begins with what is left, and would not tell of these.
            yield from self.hint([Hint("ready", queue) for queue in queues])
            queues |= yield from self._admit_blocked([row["_id"] for row in blocked])
        return Admitted(len(arriving) + len(blocked), sorted(queues))

    def _admit_blocked(self, ids: Sequence[UUID]) -> Operation[set[str]]:
        now = yield from self.read_now()
        edges = yield self.undone(ids, alone=True)
        yield from self._link({edge["chain_id"] for edge in edges})
        arriving = {"_id": {"$in": ids}, "arriving": "blocked", "state": BLOCKED}
        yield Request(self.jobs, "update_many", (arriving, {"$inc": {"revision": 1}}))
        taken = yield self.find_jobs(arriving, WAITS_BY, size=len(ids), alone=False)
        if not taken:
            return set()
        edges = yield self.undone([document["_id"] for document in taken], alone=False)
        completed, failures = yield from self._ended({edge["chain_id"] for edge in edges})
        yield from self.mark_done(completed, {"job": {"$in": [document["_id"] for document in taken]}})
        left = Counter(edge["job"] for edge in edges if edge["chain_id"] not in completed)
        queues = yield from self.write_left([(document, left[document["_id"]]) for document in taken], now)
        cancelled, freed = yield from self.fail_dependents(failures, now)
        yield from self.write_endings(cancelled, now)
        return queues | freed

    def _link(self, chains: Collection[UUID]) -> Operation[None]:
        """Mark the last job of each chain, unless it has completed: whoever ends it from now on sees who waits for it.
        So the transaction that follows need not write on any of them."""
        rows = yield self.find_chains([*chains], ENDS_BY, alone=True)
        last = [row["_id"] for row in last_of_each(rows) if row["state"] != COMPLETED]
        if last:
            filter = {"_id": {"$in": last}, "state": {"$ne": COMPLETED}}
            yield Request(self.jobs, "update_many", (filter, LINK), alone=True)

    def _ended(self, chains: Collection[UUID]) -> Operation[tuple[dict[UUID, str | None], list[Failure]]]:
        """The chains that have completed, with their outputs, and those that have failed. One that is not there, or
        whose last has gone on, was deleted or never kept."""
        rows = yield self.find_chains([*chains], ENDS_BY, alone=False)
        last = last_of_each(rows)
        # What is linked was so by us, or came after those who wait for it; the rest has slipped through.
        missed = [row["_id"] for row in last if row["state"] != COMPLETED and "linked" not in row]
        if missed:
            yield Request(self.jobs, "update_many", ({"_id": {"$in": missed}}, LINK))
        completed = {row["_id"]: chain_of(row) for row in last if row["state"] == COMPLETED}
        outputs = yield self.find_jobs({"_id": {"$in": [*completed]}}, {"output": 1}, size=len(completed), alone=False)
        failures = [
            Failure(chain_of(row), row["_id"], row["type"], row["state"])
            for row in last
            if row["state"] in (FAILED, CANCELLED)
        ]
        return {completed[row["_id"]]: row["output"] for row in outputs if "output" in row}, failures

    def watch(self, chains: Sequence[UUID]) -> Operation[None]:
        if chains:
            members = [{"_id": {"$in": [*chains]}}, {"chain_id": {"$in": [*chains]}, "chain_index": {"$gt": 0}}]
            live = {"$or": members, "state": {"$in": sorted(LIVE)}}
            yield Request(self.jobs, "update_many", (live, LINK), alone=True)

    def blockers(self, ids: Sequence[UUID]) -> Operation[dict[UUID, list[Blocker]]]:
        options = {"sort": [("job", 1), ("position", 1)], "batch_size": 10_000}
        edges = yield Request(self.edges, "find", ({"job": {"$in": [*ids]}},), options, alone=True)
        found: dict[UUID, list[Blocker]] = {}
        for edge in edges:
            more = edge.get("output"), edge.get("failed", False), edge.get("trace")
            found.setdefault(edge["job"], []).append(Blocker(edge["chain_id"], edge["done"], *more))
        return found

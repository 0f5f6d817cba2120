"""Letting in what has arrived: due jobs into the lines of their order keys, and those that wait for others.

Neither waits for a lock, nor holds anybody up for long: all is done in short transactions, and what another one has
locked is left for later. What a job waits for is linked before the transaction that decides: that one writes on the
waiting jobs first, and on little else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from datetime import datetime
from uuid import UUID

from ...lifecycle import BLOCKED, CANCELLED, COMPLETED, FAILED, PENDING
from ...operation import Operation, Request
from ..store import Admitted, Failure
from .context import Context, Part
from .dependents import WAITS_BY, Dependents
from .documents import Document, OrderKey, chain_of, last_of_each
from .order_keys import OrderKeys
from .settle import Settlements
from .skip_locked import by_halves

LINK = {"$inc": {"linked": 1}}  # each time anew: whoever settles the job at this moment must collide with it
LOOKS = 8  # of one admission at what arrives, each past those that it could not take in the looks before
ENDS_BY = dict.fromkeys(("state", "chain_id", "chain_index", "linked", "type"), 1)


class Admission(Part):
    """Operation `admit`."""

    def __init__(
        self, context: Context, settlements: Settlements, dependents: Dependents, order_keys: OrderKeys
    ) -> None:
        super().__init__(context)
        self.settlements, self.dependents, self.order_keys = settlements, dependents, order_keys

    def admit(self, limit: int) -> Operation[Admitted]:
        lined_up = yield from self._admit_to_lines(limit)
        freed = yield from self._admit_blocked(limit)
        queues = sorted({*lined_up.queues, *freed.queues})
        return Admitted(lined_up.jobs + freed.jobs, queues, lined_up.left + freed.left)

    def _admit_to_lines(self, limit: int) -> Operation[Admitted]:
        taken = left = 0
        queues: set[str] = set()
        busy: set[OrderKey] = set()
        for _ in range(LOOKS):
            room = limit - taken
            options = {"limit": room, "batch_size": room + 1, "hint": "arriving"}
            options["sort"] = [("due_at", 1), ("arrival", 1)]
            due = {"arriving": "in line", "state": PENDING, **self.order_keys.due_by_now, **beside(busy)}
            arriving = yield Request(
                self.context.jobs, "find", (due, {"tenant": 1, "order_key": 1}), options, alone=True
            )
            if not arriving:
                break
            done = yield from self.order_keys.line_up(arriving)
            queues |= done.queues
            busy |= done.busy
            taken, left = taken + done.placed, left + len(arriving) - done.placed
            if len(arriving) < room or not done.busy:
                break
        return Admitted(taken, sorted(queues), left)

    def _admit_blocked(self, limit: int) -> Operation[Admitted]:
        taken = left = 0
        queues: set[str] = set()
        passed: list[UUID] = []
        for _ in range(LOOKS):
            room = limit - taken
            waiting: Document = {"arriving": "blocked", "state": BLOCKED}
            if passed:
                waiting["_id"] = {"$nin": passed}
            options = {"limit": room, "batch_size": room + 1, "hint": "arriving"}
            rows = yield Request(self.context.jobs, "find", (waiting, {"_id": 1}), options, alone=True)
            if not rows:
                break
            ids = [row["_id"] for row in rows]
            free, held_back = yield from self._decide_blocked(ids)
            queues |= free
            passed += held_back
            taken, left = taken + len(ids) - len(held_back), left + len(held_back)
            if len(ids) < room or not held_back:
                break
        return Admitted(taken, sorted(queues), left)

    def _decide_blocked(self, ids: Sequence[UUID]) -> Operation[tuple[set[str], list[UUID]]]:
        """The queues of those that wait for nothing any more; and those of which nothing can be said yet, since
        another transaction has locked them, or what they wait for."""
        now = yield from self.context.read_now()
        edges = yield self.context.find_open_edges(ids, alone=True)
        busy = yield from self._link({edge["chain_id"] for edge in edges})
        held_back = {edge["job"] for edge in edges if edge["chain_id"] in busy}
        free = [id for id in ids if id not in held_back]
        queues, locked = yield from by_halves(free, lambda some: self._count_blockers(some, now))
        return set().union(*queues), [*held_back, *locked]

    def _count_blockers(self, ids: Sequence[UUID], now: datetime) -> Operation[set[str]]:
        arriving = {"_id": {"$in": [*ids]}, "arriving": "blocked", "state": BLOCKED}
        yield Request(self.context.jobs, "update_many", (arriving, {"$inc": {"revision": 1}}))
        taken = yield self.context.find_jobs(arriving, WAITS_BY, size=len(ids), alone=False)
        if not taken:
            return set()
        edges = yield self.context.find_open_edges([document["_id"] for document in taken], alone=False)
        completed, failures = yield from self._ended({edge["chain_id"] for edge in edges})
        yield from self.dependents.mark_done(completed, {"job": {"$in": [document["_id"] for document in taken]}})
        left = Counter(edge["job"] for edge in edges if edge["chain_id"] not in completed)
        queues = yield from self.dependents.write_left([(document, left[document["_id"]]) for document in taken], now)
        cancelled, freed = yield from self.dependents.fail(failures, now)
        yield from self.settlements.write_endings(cancelled, now)
        return queues | freed

    def _link(self, chains: Collection[UUID]) -> Operation[set[UUID]]:
        """Mark the last job of each chain, unless it has completed: whoever ends it from now on sees who waits for it.
        So the transaction that follows need not write on any of them. The chains whose last job another transaction
        has locked: it may be ending it."""
        rows = yield self.context.find_chains([*chains], ENDS_BY, alone=True)
        last = {row["_id"]: chain_of(row) for row in last_of_each(rows) if row["state"] != COMPLETED}
        _, locked = yield from by_halves([*last], self._link_some)
        return {last[id] for id in locked}

    def _link_some(self, ids: Sequence[UUID]) -> Operation[None]:
        yield Request(self.context.jobs, "update_many", ({"_id": {"$in": [*ids]}, "state": {"$ne": COMPLETED}}, LINK))

    def _ended(self, chains: Collection[UUID]) -> Operation[tuple[dict[UUID, str | None], list[Failure]]]:
        """The chains that have completed, with their outputs, and those that have failed. One that is not there, or
        whose last has gone on, was deleted or never kept."""
        rows = yield self.context.find_chains([*chains], ENDS_BY, alone=False)
        last = last_of_each(rows)
        # What is linked was so by us, or came after those who wait for it; the rest has slipped through.
        missed = [row["_id"] for row in last if row["state"] != COMPLETED and "linked" not in row]
        if missed:
            yield Request(self.context.jobs, "update_many", ({"_id": {"$in": missed}}, LINK))
        completed = {row["_id"]: chain_of(row) for row in last if row["state"] == COMPLETED}
        outputs = yield self.context.find_jobs(
            {"_id": {"$in": [*completed]}}, {"output": 1}, size=len(completed), alone=False
        )
        failures = [
            Failure(chain_of(row), row["_id"], row["type"], row["state"])
            for row in last
            if row["state"] in (FAILED, CANCELLED)
        ]
        return {completed[row["_id"]]: row["output"] for row in outputs if "output" in row}, failures


def beside(lanes: Collection[OrderKey]) -> Document:
    """A filter for jobs of other keys."""
    keys = [{"tenant": tenant, "order_key": order_key} for tenant, order_key in sorted(lanes)]
    return {"$nor": keys} if keys else {}

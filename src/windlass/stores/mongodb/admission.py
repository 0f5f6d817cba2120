"""Admission: due jobs get their places in the lines of their order keys, blocked jobs learn the state of their
blockers.

It waits for no lock and delays others only shortly: it works in short transactions, and leaves documents that another
transaction has locked for later. It links the chains that a job waits for before the transaction that decides. That
transaction writes on the waiting jobs first, and on few other documents.
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

LINK = {"$inc": {"linked": 1}}  # a write each time, so that it conflicts with a settlement at this moment
LOOKS = 8  # of one admission; each skips the jobs that the looks before could not admit
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
        """The queues of the jobs that wait for no chain any more; and the jobs that cannot be admitted yet, since
        another transaction has locked them, or a chain that they wait for."""
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
        """Mark the last job of each chain, unless it has completed: a settlement that ends it from now on sees that
        others wait for it. So the transaction that follows need not write on these jobs. The answer: the chains whose
        last job another transaction has locked, since it may be ending it."""
        rows = yield self.context.find_chains([*chains], ENDS_BY, alone=True)
        last = {row["_id"]: chain_of(row) for row in last_of_each(rows) if row["state"] != COMPLETED}
        _, locked = yield from by_halves([*last], self._link_some)
        return {last[id] for id in locked}

    def _link_some(self, ids: Sequence[UUID]) -> Operation[None]:
        yield Request(self.context.jobs, "update_many", ({"_id": {"$in": [*ids]}, "state": {"$ne": COMPLETED}}, LINK))

    def _ended(self, chains: Collection[UUID]) -> Operation[tuple[dict[UUID, str | None], list[Failure]]]:
        """The chains that have completed, with their outputs, and those that have failed. A chain that does not exist,
        or whose last job has no output, was deleted or never kept."""
        rows = yield self.context.find_chains([*chains], ENDS_BY, alone=False)
        last = last_of_each(rows)
        # `_link` has linked these jobs, or they were added as linked. A job without it was added in between.
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


def beside(order_keys: Collection[OrderKey]) -> Document:
    """A filter for jobs of other order keys."""
    keys = [{"tenant": tenant, "order_key": order_key} for tenant, order_key in sorted(order_keys)]
    return {"$nor": keys} if keys else {}

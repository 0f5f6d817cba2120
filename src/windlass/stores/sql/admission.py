"""Admission in SQL: due jobs get their places in the lines of their order keys, blocked jobs learn the state of their
blockers.

A job with an order key or with blockers is enqueued as *arriving*, so that the caller's transaction locks no other row
of the queue. `admit` runs in a transaction of Windlass. It first links the chains that the job waits for; the next
statement then decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from ...job import JobError
from ...lifecycle import FAILED, PENDING
from ...operation import Operation
from ...outcome import Settlement, encode_error
from ..store import Admitted
from ..wakeup import Hint
from .dependents import Dependents
from .dialect import Dialect, OrderKey, Part, SendHints
from .order_keys import OrderKeys
from .status import Statuses

LOOKS = 8  # of one admission; each skips the jobs that the looks before could not admit


class Admission(Part):
    """Operation `admit`. It waits for no lock: a job that another transaction has locked stays arriving, with all jobs
    that have to come after it."""

    def __init__(
        self, dialect: Dialect, statuses: Statuses, dependents: Dependents, order_keys: OrderKeys, hint: SendHints
    ) -> None:
        super().__init__(dialect)
        self.statuses, self.dependents, self.order_keys, self.hint = statuses, dependents, order_keys, hint

    def admit(self, limit: int) -> Operation[Admitted]:
        ((ordered, blocked),) = yield self.statement("arriving", alone=True)
        taken = left = 0
        queues: set[str] = set()
        for wanted, admit_some in ((ordered, self._admit_ordered), (blocked, self._admit_blocked)):
            if wanted:
                some = yield from admit_some(limit)
                taken, left, queues = taken + some.jobs, left + some.left, queues.union(some.queues)
        return Admitted(taken, sorted(queues), left)

    # Jobs with an order key

    def _admit_ordered(self, limit: int) -> Operation[Admitted]:
        taken = left = 0
        queues: set[str] = set()
        busy: set[OrderKey] = set()
        for _ in range(LOOKS):
            room = limit - taken
            arriving = yield replace(self.dialect.arriving_ordered(room, busy), alone=True)
            if not arriving:
                break
            keys = yield from self.order_keys.try_lock(sorted({(tenant, key) for _, tenant, key, _ in arriving}))
            ours = set(keys)
            listed = [row for row in arriving if (row[1], row[2]) in ours]
            ids = yield from self._line_up(listed)
            queues |= yield from self.order_keys.promote(keys)
            busy |= {(tenant, key) for id, tenant, key, _ in arriving if id not in ids}
            taken, left = taken + len(ids), left + len(arriving) - len(ids)
            if len(arriving) < room or len(ids) == len(arriving):
                break
        return Admitted(taken, sorted(queues), left)

    def _line_up(self, arriving: Sequence[Any]) -> Operation[set[Any]]:
        """The ids, as the rows have them, of the jobs that are in line now, or have failed."""
        short = [id for id, _, _, long in arriving if not long]
        rows = (yield self.statement("line_up", ids=self.array(short))) if short else ()
        done = {row[0] for row in rows}
        for id, _, _, long in arriving:
            if long:
                done |= yield from self._try_to_line_up(id)
        return done

    def _try_to_line_up(self, id: Any) -> Operation[set[Any]]:
        """For a job whose order key may be too long for an index. Then the job fails, so that it stops no other."""
        yield self.statement("savepoint")
        try:
            rows = yield self.statement("line_up", ids=self.array([id]))
            return {row[0] for row in rows}
        except Exception as error:
            yield self.statement("savepoint_undo")
            reason = JobError("NotAdmitted", f"the database cannot hold its order key in an index: {error}")
        settlement = Settlement(id=self.rows.to_uuid(id), token=None, state=FAILED, error=encode_error(reason))
        statuses = yield from self.statuses.read([settlement.id])
        if settlement.id in statuses:
            yield from self.dependents.end_with_dependents([settlement], statuses)
        return {id}

    # Jobs with blockers

    def _admit_blocked(self, limit: int) -> Operation[Admitted]:
        taken = left = 0
        queues: set[str] = set()
        busy: set[UUID] = set()
        for _ in range(LOOKS):
            room = limit - taken
            rows = yield replace(self.dialect.arriving_blocked(room, busy), alone=True)
            if not rows:
                break
            ids = [self.rows.to_uuid(row[0]) for row in rows]
            free, admitted, locked = yield from self._count_blockers(ids)
            busy |= locked
            queues |= free
            taken, left = taken + admitted, left + len(ids) - admitted
            if len(ids) < room or not locked:
                break
        return Admitted(taken, sorted(queues), left)

    def _count_blockers(self, ids: Sequence[UUID]) -> Operation[tuple[set[str], int, set[UUID]]]:
        """The queues of the jobs that wait for no chain any more, the number of admitted jobs, and the chains for which
        the other jobs have to wait longer."""
        rows = yield self.statement("take_blocked", ids=self.array(ids))
        taken = [self.rows.to_uuid(row[0]) for row in rows]
        if not taken:
            return set(), 0, set()
        rows = yield self.statement("awaited_chains", ids=self.array(taken))
        completed, failures, busy = yield from self.dependents.link({self.rows.to_uuid(row[0]) for row in rows})
        if busy:
            rows = yield self.statement("held_back", ids=self.array(taken), chains=self.array(sorted(busy)))
            held_back = {self.rows.to_uuid(row[0]) for row in rows}
            taken = [id for id in taken if id not in held_back]
        if not taken:
            return set(), 0, busy
        if completed:
            yield self.dialect.mark_done(completed, taken)
        rows = yield self.statement("count_blockers", ids=self.array(taken))
        cancelled, freed = yield from self.dependents.fail(failures)
        yield from self.hint([Hint("finished", str(chain)) for chain in cancelled])
        return {queue for _, queue, state in rows if state == PENDING} | freed, len(taken), busy

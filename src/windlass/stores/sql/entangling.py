"""Jobs that others hang on, in SQL: chains, blockers, order keys.

A job that waits for others, or for its turn, comes in as *arriving*, so that the transaction it comes in locks nothing
of the queue. `admit` is a transaction of our own: it marks what is waited for as linked, and then, in the next
statement, decides. A settlement of a plain job is one statement that passes linked ones by; those are ended here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID

from ...job import Job, NewJob
from ...lifecycle import COMPLETED, LIVE, PENDING
from ...operation import Current, Operation, Statement
from ...outcome import Settlement
from ..store import Admitted, Blocker, Enqueued
from ..waiting import refuse_taken
from ..wakeup import Hint
from .places import Place, Places

Lane = tuple[str, str]  # tenant, order key

TRIES = 5  # to find a chain that may be on its way from live to finished or back


class Entangling(Places):
    """Part of a store."""

    def enqueue(self, jobs: Sequence[NewJob], *, resent: bool = False) -> Operation[list[Enqueued]]:
        raise NotImplementedError

    def hint(self, hints: Sequence[Hint]) -> Operation[None]:
        raise NotImplementedError

    # What a dialect adds

    def finish(self, settlements: Sequence[Settlement], *, alone: bool, plain: bool = True) -> Operation[set[UUID]]:
        """Move jobs to history (keep=0: nowhere), each fenced; the ids of those that were refused. `plain`: only those
        that nobody hangs on."""
        raise NotImplementedError

    def goes_on(self, job: NewJob) -> bool:
        """Whether `finish` itself creates this next job of a chain."""
        return False

    def lock_lanes(self, lanes: Sequence[Lane]) -> Operation[None]:
        raise NotImplementedError

    def hold_ends(self, chains: Sequence[UUID]) -> Operation[None]:
        """Keep what has ended from being brought back until we are done."""
        raise NotImplementedError

    def of_lanes(self, name: str, lanes: Sequence[Lane]) -> Statement:
        raise NotImplementedError

    def of_ends(self, ends: Sequence[tuple[UUID, str | None]], jobs: Sequence[UUID] | None) -> Statement:
        """The edges that these chains' ends complete: all of them, or those of some jobs."""
        raise NotImplementedError

    def of_counts(self, name: str, counts: Counter[UUID]) -> Statement:
        raise NotImplementedError

    # Ending

    def end(self, settlements: Sequence[Settlement], *, alone: bool) -> Operation[set[UUID]]:
        """Finish jobs, entangled or not; the ids of those that were refused."""
        plain = [one for one in settlements if one.continues is None or self.goes_on(one.continues)]
        only_plain = len(plain) == len(settlements)
        refused = (yield from self.finish(plain, alone=alone and only_plain)) if plain else set()
        if only_plain and not refused:
            return set()
        tried = {one.id for one in plain}
        suspects = [one for one in settlements if one.id not in tried or one.id in refused]
        if not suspects:
            return set()
        places = yield from self.whereabouts([one.id for one in suspects], alone=alone and only_plain)
        held = [one for one in suspects if _is_held(one, places.get(one.id))]
        refused = {one.id for one in suspects} - {one.id for one in held}
        if held:
            refused |= yield from self._end_entangled(held, places)
        return refused

    def _end_entangled(self, settlements: Sequence[Settlement], places: dict[UUID, Place]) -> Operation[set[UUID]]:
        lanes = sorted({places[one.id].in_lane for one in settlements if places[one.id].lane is not None})
        if any(_needs_to_see(one, places[one.id]) for one in settlements):
            yield Current("others wait for a job that ends here, or for their turn behind it")
        yield from self.lock_lanes(lanes)
        refused = yield from self.finish(settlements, alone=False, plain=False)
        ended = [one for one in settlements if one.id not in refused]
        hints = {Hint("finished", str(places[one.id].chain_id)) for one in ended if one.continues is None}
        queues = yield from self._go_on([one.continues for one in ended if one.continues is not None])
        completed = [one for one in ended if one.state == COMPLETED and one.continues is None]
        queues |= yield from self._unblock([(places[one.id].chain_id, one.output) for one in completed])
        queues |= yield from self.promote(lanes)
        yield from self.hint([*hints, *(Hint("ready", queue) for queue in queues)])
        return refused

    def _go_on(self, jobs: Sequence[NewJob]) -> Operation[set[str]]:
        """The next jobs of their chains; who waits for a chain waits for its next job now."""
        if not jobs:
            return set()
        added = yield from self.enqueue(jobs)
        refuse_taken(jobs, added)
        yield self.statement("link_next", ids=self.array([one.job.id for one in added]))
        return {one.job.queue for one in added}

    def _unblock(self, ends: Sequence[tuple[UUID, str | None]]) -> Operation[set[str]]:
        """The queues of those that waited for nothing else."""
        if not ends:
            return set()
        rows = yield self.of_ends(ends, None)
        fewer = Counter(self.rows.to_uuid(row[0]) for row in rows)
        if not fewer:
            return set()
        rows = yield self.of_counts("unblock", fewer)
        return {queue for _, queue, state in rows if state == PENDING}

    def promote(self, lanes: Sequence[Lane]) -> Operation[set[str]]:
        """Where nobody is at the head of a lane, whoever has waited longest is now."""
        if not lanes:
            return set()
        rows = yield self.of_lanes("promote", lanes)
        return {row[0] for row in rows}

    # Admitting

    def admit(self, limit: int) -> Operation[Admitted]:
        ((in_lanes, waiting),) = yield self.statement("arriving", alone=True)
        arriving = (yield self.statement("arriving_lanes", alone=True, limit=limit)) if in_lanes else ()
        blocked = (yield self.statement("arriving_blocked", alone=True, limit=limit)) if waiting else ()
        queues: set[str] = set()
        if arriving:
            queues |= yield from self._admit_to_lanes(arriving)
        if blocked:
            queues |= yield from self._admit_blocked([self.rows.to_uuid(row[0]) for row in blocked])
        return Admitted(len(arriving) + len(blocked), sorted(queues))

    def _admit_to_lanes(self, arriving: Sequence[Any]) -> Operation[set[str]]:
        lanes = sorted({(tenant, key) for _, tenant, key in arriving})
        yield from self.lock_lanes(lanes)
        yield self.statement("give_places", ids=self.array([row[0] for row in arriving]))
        return (yield from self.promote(lanes))

    def _admit_blocked(self, ids: Sequence[UUID]) -> Operation[set[str]]:
        rows = yield self.statement("take_blocked", ids=self.array(ids))
        taken = [self.rows.to_uuid(row[0]) for row in rows]
        if not taken:
            return set()
        rows = yield self.statement("awaited_chains", ids=self.array(taken))
        completed = yield from self._link({self.rows.to_uuid(row[0]) for row in rows})
        if completed:
            yield self.of_ends(completed, taken)
        rows = yield self.statement("count_blockers", ids=self.array(taken))
        return {queue for _, queue, state in rows if state == PENDING}

    def _link(self, chains: Iterable[UUID]) -> Operation[list[tuple[UUID, str | None]]]:
        """Mark what is live of these chains; those that have completed, with their outputs. What is neither live nor
        in history after a few looks was deleted, or never kept."""
        completed = []
        left = sorted(chains)
        for _ in range(TRIES):
            rows = yield self.statement("link", ids=self.array(left))
            live = {self.rows.to_uuid(row[0]) for row in rows}
            left = [chain for chain in left if chain not in live]
            if not left:
                break
            yield from self.hold_ends(left)
            rows = yield self.statement("chain_ends", ids=self.array(left))
            ended = {self.rows.to_uuid(chain): (state, output) for chain, state, output in rows}
            completed += [
                (chain, output)
                for chain, (state, output) in ended.items()
                if state == COMPLETED and output is not None  # else its end is no longer kept
            ]
            left = [chain for chain in left if chain not in ended]
            if not left:
                break
        return completed

    def watch(self, chains: Sequence[UUID]) -> Operation[None]:
        yield self.statement("link", alone=True, ids=self.array(sorted(chains)))

    def head(self, tenant: str, order_key: str) -> Operation[Job | None]:
        rows = yield self.statement("head", alone=True, tenant=tenant, order_key=order_key)
        return self.rows.job(rows[0]) if rows else None

    def ends(self, chains: Sequence[UUID]) -> Operation[list[Job]]:
        rows = yield self.statement("ends", alone=True, ids=self.array(chains))
        return [self.rows.job(row) for row in rows]

    def seize(self, ids: Sequence[UUID], token: UUID) -> Operation[list[Job]]:
        rows = yield self.statement("seize", ids=self.array(sorted(ids)), token=token)
        return [self.rows.job(row) for row in rows]

    def blockers(self, ids: Sequence[UUID]) -> Operation[dict[UUID, list[Blocker]]]:
        rows = yield self.statement("blockers", alone=True, ids=self.array(ids))
        found: dict[UUID, list[Blocker]] = {}
        to_uuid = self.rows.to_uuid
        for job, chain, done, output in rows:
            found.setdefault(to_uuid(job), []).append(Blocker(to_uuid(chain), bool(done), output))
        return found


def _needs_to_see(settlement: Settlement, place: Place) -> bool:
    """Whether its end is a matter of others, who may have come meanwhile."""
    return place.linked or place.lane is not None or bool(settlement.continues and settlement.continues.id_given)


def _is_held(settlement: Settlement, place: Place | None) -> bool:
    """Whether it was passed by only because others hang on the job."""
    if place is None or place.state not in LIVE or place.token != settlement.token:
        return False
    return settlement.continues is not None or place.linked or place.lane is not None

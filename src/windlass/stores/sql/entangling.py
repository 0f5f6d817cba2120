"""Jobs that others hang on, in SQL: chains, blockers, order keys.

A job that waits for others, or for its turn, comes in as *arriving*, so that the transaction it comes in locks nothing
of the queue. `admit` is a transaction of our own: it marks what is waited for as linked, and then, in the next
statement, decides. A settlement of a plain job is one statement that passes linked ones by; those are ended here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from ...job import Job, JobError, NewJob
from ...lifecycle import CANCELLED, COMPLETED, FAILED, LIVE, PENDING
from ...operation import Current, Operation, Statement
from ...outcome import Settlement, decide_blocked, encode_error
from ..store import Admitted, Blocker, Enqueued, Failure
from ..waiting import refuse_taken
from ..wakeup import Hint
from .places import Place, Places

Lane = tuple[str, str]  # tenant, order key

LOOKS = 8  # of one admission at what arrives, each past those that it could not take in the looks before
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

    def try_lanes(self, lanes: Sequence[Lane]) -> Operation[Sequence[Lane]]:
        """`lock_lanes` for those that no other transaction has locked: they are the answer."""
        raise NotImplementedError

    def hold_ends(self, chains: Sequence[UUID]) -> Operation[set[UUID]]:
        """Keep what has ended from being brought back until we are done; the chains of which another transaction has
        locked something."""
        raise NotImplementedError

    def arriving_lanes(self, limit: int, busy: Collection[Lane]) -> Statement:
        """Due jobs that have no place in the lane of their key yet, save those of busy lanes."""
        raise NotImplementedError

    def arriving_blocked(self, limit: int, busy: Collection[UUID]) -> Statement:
        """Jobs of which it is not known yet what they wait for, save those that wait for busy chains."""
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
        # What needs no lock beside its own row is written before the rest, which may have to wait for others.
        refused = (yield from self.finish(plain, alone=alone)) if plain else set()
        if only_plain and not refused:
            return set()
        tried = {one.id for one in plain}
        suspects = [one for one in settlements if one.id not in tried or one.id in refused]
        if not suspects:
            return set()
        places = yield from self.whereabouts([one.id for one in suspects], alone=alone)
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
        failures = [_failure(one, places[one.id]) for one in ended if one.state != COMPLETED]
        cancelled, freed = yield from self._fail_dependents(failures)
        hints |= {Hint("finished", str(chain)) for chain in cancelled}
        queues |= freed
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

    def _fail_dependents(self, failures: Sequence[Failure]) -> Operation[tuple[set[UUID], set[str]]]:
        """What follows for those that wait for these chains: by their `if_failed`, along the whole graph. The chains
        that were cancelled, and the queues of those that are free."""
        cancelled: set[UUID] = set()
        queues: set[str] = set()
        to_uuid = self.rows.to_uuid
        while failures:
            failed = {one.chain_id: one for one in failures}
            rows = yield self.statement("failed_dependents", chains=self.array(sorted(failed)))
            waiting = [(to_uuid(id), to_uuid(chain), to_uuid(own), *rest) for id, chain, own, *rest in rows]
            running = sorted({id for id, *_, then in waiting if then == "run"})
            if running:
                rows = yield self.statement("mark_failed", chains=self.array(sorted(failed)), ids=self.array(running))
                rows = yield self.of_counts("unblock", Counter(to_uuid(row[0]) for row in rows))
                queues |= {queue for _, queue, state in rows if state == PENDING}
            ending = {
                id: (decide_blocked(id, failed[chain].id, failed[chain].type, failed[chain].state), own, type)
                for id, chain, own, type, then in waiting
                if then == "cancel"
            }
            refused = (
                (yield from self.finish([one for one, *_ in ending.values()], alone=False, plain=False))
                if ending
                else set()
            )
            failures = [Failure(own, id, type, CANCELLED) for id, (_, own, type) in ending.items() if id not in refused]
            cancelled |= {one.chain_id for one in failures}
        return cancelled, queues

    def promote(self, lanes: Sequence[Lane]) -> Operation[set[str]]:
        """Where nobody is at the head of a lane, whoever has waited longest is now."""
        if not lanes:
            return set()
        rows = yield self.of_lanes("promote", lanes)
        return {row[0] for row in rows}

    # Admitting

    def admit(self, limit: int) -> Operation[Admitted]:
        """Nothing here waits for a lock: what another transaction has locked stays on its way in, with all that has
        to come after it, and is listed no more in the looks that follow here."""
        ((in_lanes, waiting),) = yield self.statement("arriving", alone=True)
        taken = left = 0
        queues: set[str] = set()
        for wanted, admit_some in ((in_lanes, self._admit_to_lanes), (waiting, self._admit_blocked)):
            if wanted:
                some = yield from admit_some(limit)
                taken, left, queues = taken + some.jobs, left + some.left, queues.union(some.queues)
        return Admitted(taken, sorted(queues), left)

    def _admit_to_lanes(self, limit: int) -> Operation[Admitted]:
        taken = left = 0
        queues: set[str] = set()
        busy: set[Lane] = set()
        for _ in range(LOOKS):
            room = limit - taken
            arriving = yield replace(self.arriving_lanes(room, busy), alone=True)
            if not arriving:
                break
            lanes = yield from self.try_lanes(sorted({(tenant, key) for _, tenant, key, _ in arriving}))
            ours = set(lanes)
            listed = [row for row in arriving if (row[1], row[2]) in ours]
            ids = yield from self._give_places(listed)
            queues |= yield from self.promote(lanes)
            busy |= {(tenant, key) for id, tenant, key, _ in arriving if id not in ids}
            taken, left = taken + len(ids), left + len(arriving) - len(ids)
            if len(arriving) < room or len(ids) == len(arriving):
                break
        return Admitted(taken, sorted(queues), left)

    def _give_places(self, arriving: Sequence[Any]) -> Operation[set[Any]]:
        """Those that were let in, as the rows have their ids; or were set aside."""
        short = [id for id, _, _, long in arriving if not long]
        rows = (yield self.statement("give_places", ids=self.array(short))) if short else ()
        done = {row[0] for row in rows}
        for id, _, _, long in arriving:
            if long:
                done |= yield from self._try_place(id)
        return done

    def _try_place(self, id: Any) -> Operation[set[Any]]:
        """For one whose key no index may be able to hold: then it has failed, so that it stops no other."""
        yield self.statement("savepoint")
        try:
            rows = yield self.statement("give_places", ids=self.array([id]))
            return {row[0] for row in rows}
        except Exception as error:
            yield self.statement("savepoint_undo")
            reason = JobError("NotAdmitted", f"the database cannot hold its order key in an index: {error}")
        settlement = Settlement(id=self.rows.to_uuid(id), token=None, state=FAILED, error=encode_error(reason))
        places = yield from self.whereabouts([settlement.id])
        if settlement.id in places:
            yield from self._end_entangled([settlement], places)
        return {id}

    def _admit_blocked(self, limit: int) -> Operation[Admitted]:
        taken = left = 0
        queues: set[str] = set()
        busy: set[UUID] = set()
        for _ in range(LOOKS):
            room = limit - taken
            rows = yield replace(self.arriving_blocked(room, busy), alone=True)
            if not rows:
                break
            ids = [self.rows.to_uuid(row[0]) for row in rows]
            free, admitted, locked = yield from self._decide_blocked(ids)
            busy |= locked
            queues |= free
            taken, left = taken + admitted, left + len(ids) - admitted
            if len(ids) < room or not locked:
                break
        return Admitted(taken, sorted(queues), left)

    def _decide_blocked(self, ids: Sequence[UUID]) -> Operation[tuple[set[str], int, set[UUID]]]:
        """The queues of those that wait for nothing any more, how many were let in, and the chains that kept others
        from it."""
        rows = yield self.statement("take_blocked", ids=self.array(ids))
        taken = [self.rows.to_uuid(row[0]) for row in rows]
        if not taken:
            return set(), 0, set()
        rows = yield self.statement("awaited_chains", ids=self.array(taken))
        completed, failures, busy = yield from self._link({self.rows.to_uuid(row[0]) for row in rows})
        if busy:
            chains = self.array(sorted(busy))
            rows = yield self.statement("held_back", ids=self.array(taken), chains=chains)
            held_back = {self.rows.to_uuid(row[0]) for row in rows}
            taken = [id for id in taken if id not in held_back]
        if not taken:
            return set(), 0, busy
        if completed:
            yield self.of_ends(completed, taken)
        rows = yield self.statement("count_blockers", ids=self.array(taken))
        cancelled, freed = yield from self._fail_dependents(failures)
        yield from self.hint([Hint("finished", str(chain)) for chain in cancelled])
        return {queue for _, queue, state in rows if state == PENDING} | freed, len(taken), busy

    def _link(
        self, chains: Iterable[UUID]
    ) -> Operation[tuple[list[tuple[UUID, str | None]], list[Failure], set[UUID]]]:
        """Mark what is live of these chains; those that have completed, with their outputs; those that have failed; and
        those of which another transaction has locked a job, so that nothing can be said of them yet. What is neither
        live nor in history after a few looks was deleted, or never kept."""
        completed: list[tuple[UUID, str | None]] = []
        failures: list[Failure] = []
        busy: set[UUID] = set()
        left = sorted(chains)
        for _ in range(TRIES):
            rows = yield self.statement("link", ids=self.array(left))
            live = {self.rows.to_uuid(chain) for chain, _ in rows}
            busy |= {self.rows.to_uuid(chain) for chain, linked in rows if not linked}
            left = [chain for chain in left if chain not in live]
            if not left:
                break
            locked = yield from self.hold_ends(left)
            busy |= locked
            left = [chain for chain in left if chain not in locked]
            rows = yield self.statement("chain_ends", ids=self.array(left))
            ended = {self.rows.to_uuid(chain): (state, output) for chain, state, output, *_ in rows}
            failures += [
                Failure(self.rows.to_uuid(chain), self.rows.to_uuid(id), type, state)
                for chain, state, _, id, type in rows
                if state != COMPLETED
            ]
            completed += [
                (chain, output)
                for chain, (state, output) in ended.items()
                if state == COMPLETED and output is not None  # else its end is no longer kept
            ]
            left = [chain for chain in left if chain not in ended]
            if not left:
                break
        return completed, failures, busy

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
        for job, chain, done, output, failed, trace in rows:
            found.setdefault(to_uuid(job), []).append(Blocker(to_uuid(chain), bool(done), output, bool(failed), trace))
        return found


def _failure(settlement: Settlement, place: Place) -> Failure:
    return Failure(place.chain_id, settlement.id, place.type, settlement.state)


def _needs_to_see(settlement: Settlement, place: Place) -> bool:
    """Whether its end is a matter of others, who may have come meanwhile."""
    return place.linked or place.lane is not None or bool(settlement.continues and settlement.continues.id_given)


def _is_held(settlement: Settlement, place: Place | None) -> bool:
    """Whether it was passed by only because others hang on the job."""
    if place is None or place.state not in LIVE or place.token != settlement.token:
        return False
    return settlement.continues is not None or place.linked or place.lane is not None

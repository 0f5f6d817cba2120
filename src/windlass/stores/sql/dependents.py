"""Dependents in SQL: jobs that wait for the end of another job. They wait for its chain, or for its order key.

Most jobs have no dependents. One statement ends those; it skips a job that is linked (others wait for its chain) or
has an order key. Such jobs are ended here, with all that follows for their dependents, in one transaction.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from uuid import UUID

from ...job import NewJob
from ...lifecycle import CANCELLED, COMPLETED, LIVE, PENDING
from ...operation import Current, Operation
from ...outcome import Settlement, decide_blocked
from ..blockers import refuse_taken
from ..store import Failure
from ..wakeup import Hint
from .dialect import ChainEnd, Dialect, Part, SendHints
from .enqueue import Enqueue
from .order_keys import OrderKeys
from .status import JobStatus, Statuses

TRIES = 5  # to find a chain whose job may be moving between the live table and history


class Dependents(Part):
    def __init__(
        self, dialect: Dialect, statuses: Statuses, enqueue: Enqueue, order_keys: OrderKeys, hint: SendHints
    ) -> None:
        super().__init__(dialect)
        self.statuses, self.enqueue, self.order_keys, self.hint = statuses, enqueue, order_keys, hint

    def end_skipped(self, settlements: Sequence[Settlement], *, alone: bool) -> Operation[set[UUID]]:
        """End the jobs that the plain statement skipped: those that have dependents, or whose next job it cannot add.
        The ids of the jobs that were refused."""
        statuses = yield from self.statuses.read([one.id for one in settlements], alone=alone)
        skipped = [one for one in settlements if _was_skipped(one, statuses.get(one.id))]
        refused = {one.id for one in settlements} - {one.id for one in skipped}
        if skipped:
            refused |= yield from self.end_with_dependents(skipped, statuses)
        return refused

    def end_with_dependents(
        self, settlements: Sequence[Settlement], statuses: dict[UUID, JobStatus]
    ) -> Operation[set[UUID]]:
        keys = sorted({statuses[one.id].full_order_key for one in settlements if statuses[one.id].lane is not None})
        if any(_concerns_others(one, statuses[one.id]) for one in settlements):
            yield Current("others wait for a job that ends here, or for their turn behind it")
        yield from self.order_keys.lock(keys)
        refused = yield from self.dialect.finish(settlements, alone=False, plain=False)
        ended = [one for one in settlements if one.id not in refused]
        hints = {Hint("finished", str(statuses[one.id].chain_id)) for one in ended if one.continues is None}
        queues = yield from self._continue_chains([one.continues for one in ended if one.continues is not None])
        completed = [one for one in ended if one.state == COMPLETED and one.continues is None]
        queues |= yield from self._unblock([(statuses[one.id].chain_id, one.output) for one in completed])
        failures = [_failure(one, statuses[one.id]) for one in ended if one.state != COMPLETED]
        cancelled, freed = yield from self.fail(failures)
        hints |= {Hint("finished", str(chain)) for chain in cancelled}
        queues |= freed
        queues |= yield from self.order_keys.promote(keys)
        yield from self.hint([*hints, *(Hint("ready", queue) for queue in queues)])
        return refused

    def _continue_chains(self, jobs: Sequence[NewJob]) -> Operation[set[str]]:
        """Add the next jobs of their chains. Jobs that wait for such a chain wait for its next job now."""
        if not jobs:
            return set()
        added = yield from self.enqueue.enqueue(jobs)
        refuse_taken(jobs, added)
        yield self.statement("link_next", ids=self.array([one.job.id for one in added]))
        return {one.job.queue for one in added}

    def _unblock(self, ends: Sequence[ChainEnd]) -> Operation[set[str]]:
        """The queues of the jobs that wait for no other chain now."""
        if not ends:
            return set()
        rows = yield self.dialect.mark_done(ends, None)
        fewer = Counter(self.rows.to_uuid(row[0]) for row in rows)
        if not fewer:
            return set()
        rows = yield self.dialect.unblock(fewer)
        return {queue for _, queue, state in rows if state == PENDING}

    def fail(self, failures: Sequence[Failure]) -> Operation[tuple[set[UUID], set[str]]]:
        """Apply `if_failed` of the jobs that wait for these chains, along the whole graph. The chains that were
        cancelled, and the queues of the jobs that are free now."""
        cancelled: set[UUID] = set()
        queues: set[str] = set()
        to_uuid = self.rows.to_uuid
        while failures:
            failed = {one.chain_id: one for one in failures}
            rows = yield self.statement("failed_dependents", chains=self.array(sorted(failed)))
            waiting = [(to_uuid(id), to_uuid(chain), to_uuid(own), *rest) for id, chain, own, *rest in rows]
            queues |= yield from self._run_despite(failed, sorted({id for id, *_, then in waiting if then == "run"}))
            ending = {
                id: (decide_blocked(id, failed[chain].id, failed[chain].type, failed[chain].state), own, type)
                for id, chain, own, type, then in waiting
                if then == "cancel"
            }
            settlements = [one for one, *_ in ending.values()]
            refused = (yield from self.dialect.finish(settlements, alone=False, plain=False)) if ending else set()
            failures = [Failure(own, id, type, CANCELLED) for id, (_, own, type) in ending.items() if id not in refused]
            cancelled |= {one.chain_id for one in failures}
        return cancelled, queues

    def _run_despite(self, failed: Iterable[UUID], ids: Sequence[UUID]) -> Operation[set[str]]:
        """For these jobs the failed chains count as done. The queues of the jobs that are free now."""
        if not ids:
            return set()
        rows = yield self.statement("mark_failed", chains=self.array(sorted(failed)), ids=self.array(ids))
        rows = yield self.dialect.unblock(Counter(self.rows.to_uuid(row[0]) for row in rows))
        return {queue for _, queue, state in rows if state == PENDING}

    def link(self, chains: Iterable[UUID]) -> Operation[tuple[list[ChainEnd], list[Failure], set[UUID]]]:
        """Mark the live jobs of these chains, so that their end is not missed. The answer: the chains that have
        completed, with their outputs; those that have failed; and those of which another transaction has locked a job,
        so that their state is not known yet. A chain that is neither live nor in history after a few tries was deleted
        or never kept."""
        completed: list[ChainEnd] = []
        failures: list[Failure] = []
        busy: set[UUID] = set()
        to_uuid = self.rows.to_uuid
        left = sorted(chains)
        for _ in range(TRIES):
            rows = yield self.statement("link", ids=self.array(left))
            live = {to_uuid(chain) for chain, _ in rows}
            busy |= {to_uuid(chain) for chain, linked in rows if not linked}
            left = [chain for chain in left if chain not in live]
            if not left:
                break
            locked = yield from self.dialect.lock_ends(left)
            busy |= locked
            left = [chain for chain in left if chain not in locked]
            rows = yield self.statement("chain_ends", ids=self.array(left))
            failures += [
                Failure(to_uuid(chain), to_uuid(id), type, state)
                for chain, state, _, id, type in rows
                if state != COMPLETED
            ]
            completed += [
                (to_uuid(chain), output)
                for chain, state, output, *_ in rows
                if state == COMPLETED and output is not None  # else the job with the output is no longer kept
            ]
            ended = {to_uuid(row[0]) for row in rows}
            left = [chain for chain in left if chain not in ended]
            if not left:
                break
        return completed, failures, busy


def _failure(settlement: Settlement, status: JobStatus) -> Failure:
    return Failure(status.chain_id, settlement.id, status.type, settlement.state)


def _concerns_others(settlement: Settlement, status: JobStatus) -> bool:
    """Whether its end matters to other jobs, which may have been added meanwhile."""
    return status.linked or status.lane is not None or bool(settlement.continues and settlement.continues.id_given)


def _was_skipped(settlement: Settlement, status: JobStatus | None) -> bool:
    """Whether the settlement was skipped only because the job has dependents."""
    if status is None or status.state not in LIVE or status.token != settlement.token:
        return False
    return settlement.continues is not None or status.linked or status.lane is not None

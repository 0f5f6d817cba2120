"""Blockers of new jobs. A new job names other jobs, and waits for the chains of those jobs. The same on every store."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol
from uuid import UUID

import msgspec

from ..errors import Conflict, InvalidInput, JobNotFound
from ..job import NewJob
from ..operation import Operation
from .store import Enqueued


class ChainLookup(Protocol):
    """The questions about chains that a store answers when jobs with blockers are enqueued."""

    def chains_of(self, ids: Collection[UUID]) -> Operation[dict[UUID, UUID]]:
        """The chain of each of these jobs that exists, live or finished."""

    def awaited_by(self, chains: Collection[UUID]) -> Operation[set[UUID]]:
        """The chains that live jobs of these chains still wait for."""

    def lock_cycle_check(self) -> Operation[None]:
        """Until this transaction ends, no other transaction passes this point. Without the lock, two transactions
        could each add one half of a cycle."""


def with_chains(jobs: Sequence[NewJob], lookup: ChainLookup) -> Operation[Sequence[NewJob]]:
    """The jobs, with the chains of their blockers in place of the blockers. Each chain must exist or be enqueued in the
    same batch, and must not wait for the job in turn. Call it only if some job has blockers."""
    named = {blocker for job in jobs for blocker in job.blockers}
    chains = {job.id: job.chain_id or job.id for job in jobs}
    chains |= yield from lookup.chains_of(named - chains.keys())
    missing = {job.id: (job, one) for job in jobs for one in job.blockers if one not in chains}
    if missing:
        # A job that is sent again keeps its blockers, which may have been deleted since the first time.
        there = yield from lookup.chains_of(missing.keys())
        for job, blocker in (missing[id] for id in missing.keys() - there.keys()):
            raise JobNotFound(f"job {job.id} ({job.type}) is to wait for {blocker}, which does not exist")
    resolved = [
        msgspec.structs.replace(job, blockers=tuple(chains.get(one, one) for one in job.blockers))
        if job.blockers
        else job
        for job in jobs
    ]
    yield from _refuse_cycles(resolved, lookup)
    return resolved


def _refuse_cycles(jobs: Sequence[NewJob], lookup: ChainLookup) -> Operation[None]:
    """The first job of a chain waits only for chains that are older than its own. Only the next job of a chain can wait
    for a job that waits for this chain."""
    continuing = [job for job in jobs if job.blockers and job.chain_id not in (None, job.id)]
    if not continuing:
        return
    yield from lookup.lock_cycle_check()
    of_batch = {job.chain_id: job.blockers for job in continuing}
    for job in continuing:
        reached: set[UUID] = set()
        ahead = set(job.blockers)
        while ahead:
            if job.chain_id in ahead:
                raise InvalidInput(f"{job.type}: the next job of chain {job.chain_id} would wait for its own chain")
            reached |= ahead
            further = yield from lookup.awaited_by(ahead)
            further.update(*(of_batch.get(chain, ()) for chain in ahead))
            ahead = further - reached


def chains_to_delete(
    asked: Collection[UUID], blockers: Mapping[UUID, Collection[UUID]], stay: Collection[UUID]
) -> set[UUID]:
    """The chains that the caller asked for and the chains that they wait for, without the chains that have to stay and
    those that are reached only through them."""
    gone: set[UUID] = set()
    left = set(asked)
    while left:
        going = left - gone - set(stay)
        gone |= going
        left = {awaited for chain in going for awaited in blockers.get(chain, ())} - gone
    return gone


def refuse_taken(jobs: Sequence[NewJob], added: Sequence[Enqueued]) -> None:
    """The next job of a chain must be a new job. A job that exists already, by its id or its unique key, belongs to
    another chain, or to an earlier part of this one. Then this chain would end here, and no waiting job would learn
    of it."""
    for new, answer in zip(jobs, added, strict=True):
        if answer.job.id != new.id or answer.job.chain_id != new.chain_id:
            held = f"the unique key {new.unique_key!r}" if new.unique_key else "its id"
            raise Conflict(f"{new.type} cannot be the next job of the chain: {held} belongs to job {answer.job.id}")

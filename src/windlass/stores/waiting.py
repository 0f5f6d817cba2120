"""What new jobs wait for: they name jobs, and mean those jobs' chains. The same on every store."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from uuid import UUID

import msgspec

from ..errors import Conflict, InvalidInput, JobNotFound
from ..job import NewJob
from ..operation import Operation
from .store import Enqueued


class Waiting:
    """Part of a store."""

    # What a store adds

    def chains_of(self, ids: Collection[UUID]) -> Operation[dict[UUID, UUID]]:
        """The chain of each of these jobs that is there, live or finished."""
        raise NotImplementedError

    def awaited_by(self, chains: Collection[UUID]) -> Operation[set[UUID]]:
        """The chains that live jobs of these chains still wait for."""
        raise NotImplementedError

    def one_at_a_time(self) -> Operation[None]:
        """Until this transaction ends, no other comes past here: two could each close one half of a circle."""
        raise NotImplementedError

    # What follows from it

    def with_chains(self, jobs: Sequence[NewJob]) -> Operation[Sequence[NewJob]]:
        """The jobs, waiting for chains. Those must be there, or come with them, and must not wait for them in turn."""
        named = {blocker for job in jobs for blocker in job.blockers}
        if not named:
            return jobs
        chains = {job.id: job.chain_id or job.id for job in jobs}
        chains |= yield from self.chains_of(named - chains.keys())
        missing = {job.id: (job, one) for job in jobs for one in job.blockers if one not in chains}
        if missing:
            # One that is sent again waits for what it waits for, though that may be gone by now.
            there = yield from self.chains_of(missing.keys())
            for job, blocker in (missing[id] for id in missing.keys() - there.keys()):
                raise JobNotFound(f"job {job.id} ({job.type}) is to wait for {blocker}, which does not exist")
        resolved = [
            msgspec.structs.replace(job, blockers=tuple(chains.get(one, one) for one in job.blockers))
            if job.blockers
            else job
            for job in jobs
        ]
        yield from self._refuse_circles(resolved)
        return resolved

    def _refuse_circles(self, jobs: Sequence[NewJob]) -> Operation[None]:
        """A job that begins a chain waits for what was there before it. Only one that goes on with a chain can come to
        wait for somebody who waits for that chain."""
        going_on = [job for job in jobs if job.blockers and job.chain_id not in (None, job.id)]
        if not going_on:
            return
        yield from self.one_at_a_time()
        of_batch = {job.chain_id: job.blockers for job in going_on}
        for job in going_on:
            reached: set[UUID] = set()
            ahead = set(job.blockers)
            while ahead:
                if job.chain_id in ahead:
                    raise InvalidInput(f"{job.type}: the next job of chain {job.chain_id} would wait for its own chain")
                reached |= ahead
                further = yield from self.awaited_by(ahead)
                further.update(*(of_batch.get(chain, ()) for chain in ahead))
                ahead = further - reached


def reached(asked: Collection[UUID], blockers: Mapping[UUID, Collection[UUID]], stay: Collection[UUID]) -> set[UUID]:
    """The chains that go: those that were asked for, and what they wait for, without those that have to stay and what
    only those lead to."""
    gone: set[UUID] = set()
    left = set(asked)
    while left:
        going = left - gone - set(stay)
        gone |= going
        left = {awaited for chain in going for awaited in blockers.get(chain, ())} - gone
    return gone


def refuse_taken(jobs: Sequence[NewJob], added: Sequence[Enqueued]) -> None:
    """A chain goes on with a job of its own: one that is there already, by its id or its unique key, is another's, or
    has been of this chain before, which then would end here unheard."""
    for new, answer in zip(jobs, added, strict=True):
        if answer.job.id != new.id or answer.job.chain_id != new.chain_id:
            held = f"the unique key {new.unique_key!r}" if new.unique_key else "its id"
            raise Conflict(f"{new.type} cannot be the next job of the chain: {held} belongs to job {answer.job.id}")

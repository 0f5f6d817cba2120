"""The graph as data: what a job waits for, what waits for it, and the chains that there are."""

from __future__ import annotations

import builtins
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from .acting import Acting
from .call import check_id
from .errors import InvalidInput
from .job import Job, JobError
from .lifecycle import State
from .operation import Operation
from .policy import UNSET
from .reading import check_limit, make_filter
from .stores.store import ChainRecord, Filter
from .twins import joining_twins

AT_ONCE = 1000  # dependents that are read in one statement


class BlockerInfo(msgspec.Struct, frozen=True):
    """A chain that a job waits, or has waited, for.

    `done`: the job waits for it no longer. `failed`: it did not complete, and the job goes on without it
    (`if_failed="run"`). `job` is the newest job of the chain as it is now, None where that is no longer kept.
    """

    id: UUID  # of the chain, which is that of its first job
    done: bool
    failed: bool
    output: Any
    job: Job | None

    @property
    def chain_id(self) -> UUID:
        return self.id

    @property
    def state(self) -> State | None:
        return None if self.job is None else self.job.state

    @property
    def type(self) -> str | None:
        return None if self.job is None else self.job.type


class ChainInfo(msgspec.Struct, frozen=True):
    """A chain: `id`, `type`, `queue`, `tenant` and `created_at` are those of its first job; `state` is that of the
    newest, which is `job`. `steps`: how many jobs it has had so far."""

    id: UUID
    type: str
    queue: str
    tenant: str
    state: State
    steps: int
    created_at: datetime
    finished_at: datetime | None
    job: Job

    @property
    def output(self) -> Any:
        return self.job.output

    @property
    def error(self) -> JobError | None:
        return self.job.error


class ChainPage(Sequence[ChainInfo]):
    """Chains, newest first; `next_cursor` asks for those that follow, and is None at the end."""

    def __init__(self, chains: list[ChainInfo], next_cursor: str | None) -> None:
        self.chains, self.next_cursor = chains, next_cursor

    def __getitem__(self, index: Any) -> Any:
        return self.chains[index]

    def __len__(self) -> int:
        return len(self.chains)

    def __iter__(self) -> Iterator[ChainInfo]:
        return iter(self.chains)

    def __repr__(self) -> str:
        return f"<ChainPage of {len(self.chains)} chains{', more follow' if self.next_cursor else ''}>"


class Graph(Acting):
    """Part of `Windlass`."""

    def _blockers(self, id: UUID | str, *, connection: Any = UNSET) -> Operation[builtins.list[BlockerInfo]]:
        """The chains that this job waits, or has waited, for, in the order of `after=`."""
        job = yield from self._require(id)
        found = (yield from self.store.blockers([job.id])).get(job.id, [])
        newest = yield from self._newest_of(list(dict.fromkeys(one.chain_id for one in found)))
        return [
            BlockerInfo(
                one.chain_id,
                one.done,
                one.failed,
                None if one.output is None else msgspec.json.decode(one.output),
                newest.get(one.chain_id),
            )
            for one in found
        ]

    blockers, ablockers = joining_twins(_blockers)

    def _newest_of(self, chains: builtins.list[UUID]) -> Operation[dict[UUID, Job]]:
        """The newest job of each chain that has one."""
        if not chains:
            return {}
        newest = {job.chain_id: job for job in (yield from self.store.ends(chains))}
        for job in (yield from self.store.get([chain for chain in chains if chain not in newest])):
            newest[job.chain_id] = job
        for chain in chains:
            if chain not in newest or newest[chain].went_on:  # it runs, further on
                found = yield from self.store.list(Filter(chain=chain), AT_ONCE)
                if found:
                    newest[chain] = max(found, key=lambda job: job.chain_index)
        return {chain: self.bind(job) for chain, job in newest.items()}

    def _dependents(self, id: UUID | str, *, connection: Any = UNSET) -> Operation[builtins.list[Job]]:
        """The jobs that wait, or have waited, for this job's chain, oldest first, as far as they are kept."""
        chain = (yield from self._require(id)).chain_id
        jobs: builtins.list[Job] = []
        while True:
            page = yield from self.store.dependents(chain, AT_ONCE, jobs[-1].id if jobs else None)
            jobs += [self.bind(job) for job in page]
            if len(page) < AT_ONCE:
                return jobs

    dependents, adependents = joining_twins(_dependents)

    def _chains(
        self,
        type: str | None = None,
        state: State | str | None = None,
        queue: str | None = None,
        tenant: str | None = None,
        limit: int = 100,
        cursor: str | None = None,
        *,
        connection: Any = UNSET,
    ) -> Operation[ChainPage]:
        """A page of chains whose first job is kept, newest first. `type`, `queue` and `tenant` are those of the first
        job, `state` is that of the newest. A job that never went on is a chain of one."""
        check_limit(limit)
        filter = make_filter(state, type, queue, tenant, None)
        found = yield from self.store.chains(filter, limit + 1, None if cursor is None else _read_cursor(cursor))
        chains = [self._chain_info(record) for record in found[:limit]]
        return ChainPage(chains, chains[-1].id.hex if len(found) > limit else None)

    chains, achains = joining_twins(_chains)

    def _chain_info(self, record: ChainRecord) -> ChainInfo:
        root, last = record
        return ChainInfo(
            root.id, root.type, root.queue, root.tenant, last.state, last.chain_index + 1, root.created_at,
            last.finished_at, self.bind(last),
        )  # fmt: skip


def _read_cursor(cursor: str) -> UUID:
    try:
        return check_id(cursor)
    except InvalidInput:
        raise InvalidInput(f"cursor {cursor!r} is not one that a page of chains has given") from None

"""The graph of jobs as data: the blockers and the dependents of a job, and the chains."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from .call import check_id
from .engine import Engine
from .errors import InvalidInput
from .job import Job, JobError
from .lifecycle import State
from .operation import Operation
from .policy import UNSET
from .reads import check_limit, make_filter, require
from .stores.store import ChainRecord, Filter

AT_ONCE = 1000  # dependents that are read in one statement


class BlockerInfo(msgspec.Struct, frozen=True):
    """A chain that a job waits, or has waited, for.

    `done`: the job waits for it no longer. `failed`: it did not complete, and the job runs without it
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
    """Chains, newest first. `next_cursor` asks for the next page, and is None at the end."""

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


def blockers(engine: Engine, id: UUID | str, *, connection: Any = UNSET) -> Operation[list[BlockerInfo]]:
    """The chains that this job waits, or has waited, for, in the order of `after=`."""
    job = yield from require(engine, id)
    found = (yield from engine.store.blockers([job.id])).get(job.id, [])
    newest = yield from _newest_of(engine, list(dict.fromkeys(one.chain_id for one in found)))
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


def _newest_of(engine: Engine, chains: list[UUID]) -> Operation[dict[UUID, Job]]:
    """The newest job of each chain that has one."""
    if not chains:
        return {}
    newest = {job.chain_id: job for job in (yield from engine.store.ends(chains))}
    for job in (yield from engine.store.get([chain for chain in chains if chain not in newest])):
        newest[job.chain_id] = job
    for chain in chains:
        if chain not in newest or newest[chain].went_on:  # it runs, further on
            found = yield from engine.store.list(Filter(chain=chain), AT_ONCE)
            if found:
                newest[chain] = max(found, key=lambda job: job.chain_index)
    return {chain: engine.bind(job) for chain, job in newest.items()}


def dependents(engine: Engine, id: UUID | str, *, connection: Any = UNSET) -> Operation[list[Job]]:
    """The jobs that wait, or have waited, for this job's chain, oldest first, as far as they are kept."""
    chain = (yield from require(engine, id)).chain_id
    jobs: list[Job] = []
    while True:
        page = yield from engine.store.dependents(chain, AT_ONCE, jobs[-1].id if jobs else None)
        jobs += [engine.bind(job) for job in page]
        if len(page) < AT_ONCE:
            return jobs


def chains(
    engine: Engine,
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
    job, `state` is that of the newest. A job that no other continued is a chain of one."""
    check_limit(limit)
    filter = make_filter(state, type, queue, tenant, None)
    found = yield from engine.store.chains(filter, limit + 1, None if cursor is None else _read_cursor(cursor))
    chains = [_chain_info(engine, record) for record in found[:limit]]
    return ChainPage(chains, chains[-1].id.hex if len(found) > limit else None)


def _chain_info(engine: Engine, record: ChainRecord) -> ChainInfo:
    root, last = record
    return ChainInfo(
        root.id, root.type, root.queue, root.tenant, last.state, last.chain_index + 1, root.created_at,
        last.finished_at, engine.bind(last),
    )  # fmt: skip


def _read_cursor(cursor: str) -> UUID:
    try:
        return check_id(cursor)
    except InvalidInput:
        raise InvalidInput(f"cursor {cursor!r} is not one that a page of chains has given") from None

"""The values that a store's operations take and return."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Literal, NamedTuple, TypeAlias
from uuid import UUID

import msgspec

from ..job import Job, NewJob
from ..lifecycle import CANCELLED, FAILED, STATES, State
from ..policy import DEFAULT, Policy, is_partial


class Position(msgspec.Struct, frozen=True):
    """The position in a queue where a claim ended: the next claim may start its scan there."""

    rank: int
    run_at: datetime
    id: UUID


class ClaimRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The request of a claimer for jobs of one queue.

    `policies` maps a type to the policy for jobs that were enqueued by name alone; `default_policy` is for other types.
    The claim writes it into the row, once. `lease_seconds` is for this attempt alone, in place of the policy's.
    `prefetch`: the jobs will wait in a buffer, so the claim takes no job's last attempt; it skips up to about a
    thousand of those. `order_key` asks for the head of that key alone; `tenant` (with it) tells equal keys of several
    tenants apart. `max_bytes` counts inputs as the store keeps them. `begun` False: a job's last attempt does not count
    as begun until `begin` says so; the claimer promises to call `begin` before it starts such an attempt.
    """

    queue: str
    limit: int
    token: UUID
    worker: str
    types: Sequence[str] | None = None
    policies: Mapping[str, Policy] = msgspec.field(default_factory=dict)
    default_policy: Policy = DEFAULT
    lease_seconds: float | None = None
    max_bytes: int = 16 * 1024 * 1024
    prefetch: bool = False
    order_key: str | None = None
    tenant: str | None = None
    after: Position | None = None
    begun: bool = True


class Enqueued(msgspec.Struct, frozen=True):
    """The answer for one new job: the job itself, or the job that existed already."""

    job: Job
    created: bool


class Admitted(NamedTuple):
    """The number of admitted jobs, the queues in which some of them can run now, and the number of jobs that could not
    be admitted yet, since another transaction has locked them or a chain that they wait for."""

    jobs: int
    queues: Sequence[str]
    left: int = 0


class Blocker(NamedTuple):
    """A chain that a job waits or has waited for; its output, as JSON, once it has completed. `failed`: it did not
    complete, and the job runs without it."""

    chain_id: UUID
    done: bool
    output: str | None
    failed: bool = False
    trace: str | None = None


class ChainRecord(NamedTuple):
    """A chain: its first job, and the newest one, which may be the same."""

    root: Job
    last: Job


class Failure(NamedTuple):
    """A chain that has failed or was cancelled, and its last job."""

    chain_id: UUID
    id: UUID
    type: str
    state: State


Reason: TypeAlias = Literal["taken by another", "not found", "already finished", "locked"]


class Refusal(msgspec.Struct, frozen=True):
    """A write that its fence refused: nothing was written. The token identifies the attempt of the job."""

    id: UUID
    reason: Reason
    token: UUID | None = None


class HandedOver(msgspec.Struct, frozen=True):
    """The answer to a settlement that continues a chain, and the next job, where it was claimed at once."""

    refusals: list[Refusal]
    job: Job | None = None


def may_be_handed_over(job: NewJob) -> bool:
    """Whether the worker that completes the job before it may claim it at once."""
    waits = job.run_at or job.delay_seconds or job.order_key or job.blockers or job.max_attempts == 1
    plain = job.unique_key is None and job.expires_at is None and job.expires_seconds is None
    return plain and not waits and job.lease_seconds is not None and not is_partial(job.policy)


class Lease(msgspec.Struct, frozen=True):
    """A lease to renew, with the progress that the handler has reported since; or an attempt that begins."""

    id: UUID
    token: UUID
    seconds: float
    progress: str | None = None


class Note(msgspec.Struct, frozen=True):
    """The progress that a handler has reported, as JSON text, and the token of its claim."""

    id: UUID
    token: UUID
    progress: str


class WorkerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A worker that is alive, as it describes itself."""

    name: str
    host: str
    pid: int
    queues: list[str] | None  # None: all
    types: list[str]
    concurrency: int
    running: int
    started_at: datetime | None = None
    heard_at: datetime | None = None


class Finding(msgspec.Struct, frozen=True):
    """One thing that `windlass doctor` has looked at, whether it is right, and its remedy if not."""

    name: str
    is_right: bool
    text: str
    remedy: str | None = None


class Renewal(msgspec.Struct, frozen=True):
    """The answer to a renewal: the lease's new end (None: the lease is lost; `reason` says why), and whether the
    cancellation of the job was requested.

    `locked`: another transaction has locked the job and may be settling it; the lease is unchanged. Ask again soon.
    """

    id: UUID
    expires_at: datetime | None
    cancel_requested: bool = False
    reason: Reason | None = None
    locked: bool = False


class Change(msgspec.Struct, frozen=True):
    """The result of an action on one job. `state` is its state now, or when it was deleted; None where there is no such
    job. `reason`: why nothing was done, where the state alone does not explain it."""

    id: UUID
    done: bool
    state: State | None
    queue: str | None = None
    reason: str | None = None


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    state: State | None = None
    type: str | None = None
    queue: str | None = None
    tenant: str | None = None
    chain: UUID | None = None
    since: datetime | None = None  # finished, or, of live ones, created since then
    unique: str | None = None  # the jobs that hold this key of `tenant`, of no tenant where none is given

    @property
    def by_end(self) -> bool:
        """Whether the list is in the order of the jobs' ends: people look for the last failure."""
        return self.state in (FAILED, CANCELLED)


class Bookmark(NamedTuple):
    """The end of a page of a list: an id or, in a list by ends, an end and an id."""

    id: UUID
    ended_at: datetime | None = None

    @classmethod
    def of(cls, job: Job) -> Bookmark:
        return cls(job.id, job.finished_at)


class Tally(msgspec.Struct, frozen=True):
    """How many jobs of one queue and type are in one state."""

    queue: str
    type: str
    state: State
    count: int


class Counts(Mapping[str, int]):
    """Jobs by state: `counts["failed"]`, `counts.failed`; `counts.tallies` has them by queue and type."""

    def __init__(self, tallies: Iterable[Tally]) -> None:
        self.tallies = [tally for tally in tallies if tally.count]
        self._by_state = dict.fromkeys(STATES, 0)
        for tally in self.tallies:
            self._by_state[tally.state] += tally.count

    def __getitem__(self, state: str) -> int:
        return self._by_state[state]  # type: ignore[index]

    def __getattr__(self, state: str) -> int:
        try:
            return self.__dict__["_by_state"][state]  # type: ignore[no-any-return]
        except KeyError:
            raise AttributeError(state) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_state)

    def __len__(self) -> int:
        return len(self._by_state)

    @property
    def total(self) -> int:
        return sum(self._by_state.values())

    def __repr__(self) -> str:
        return "Counts(" + ", ".join(f"{state}={count}" for state, count in self._by_state.items()) + ")"

"""The part of the model in which jobs hang on each other: chains, what waits for them, and lines of order keys."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from uuid import UUID

from windlass.job import NewJob
from windlass.lifecycle import BLOCKED, COMPLETED, LIVE, PENDING, RUNNING, State

Key = tuple[str, str]

NOT_DUE, IN_LINE, HEAD = 0, 1, 2


@dataclass
class Edge:
    """A chain that a job waits for."""

    chain: UUID
    done: bool = False
    output: str | None = None


@dataclass
class ModelJob:
    id: UUID
    queue: str
    tenant: str
    priority: int
    input: str
    run_at: datetime
    expires_at: datetime | None
    max_attempts: int
    keep_seconds: int | None
    key: Key | None
    until: str | None
    holds_key: bool
    chain_id: UUID
    chain_index: int
    order_key: str | None
    arrival: int  # of two that are due at the same moment, the one that came first goes first
    edges: list[Edge]
    arriving: bool  # blocked, and nobody has looked yet whether it has to be
    lane: int | None = None
    place: int = 0
    state: State = PENDING
    attempt: int = 0
    token: UUID | None = None
    lease_ends: datetime | None = None
    cancel_requested: bool = False
    output: str | None = None
    purge_at: datetime | None = None
    settled: dict[UUID, State] = field(default_factory=dict)  # what was accepted from whom, as long as it is known

    @property
    def order(self) -> tuple[int, datetime, UUID]:
        return -self.priority, self.run_at, self.id

    @property
    def line(self) -> Key | None:
        return None if self.order_key is None else (self.tenant, self.order_key)

    @property
    def undone(self) -> list[Edge]:
        return [edge for edge in self.edges if not edge.done]

    def is_last(self, attempt: int) -> bool:
        return attempt >= self.max_attempts


class Missing(Exception):
    """It is to wait for something that does not exist."""


class Entanglement:
    def __init__(self) -> None:
        self.offset = timedelta()
        self.jobs: dict[UUID, ModelJob] = {}
        self.retimed: set[UUID] = set()  # the store says when exactly these are due
        self.count = 0

    @property
    def now(self) -> datetime:
        return datetime.now(UTC) + self.offset

    def next_number(self) -> int:
        self.count += 1
        return self.count

    def set_time(self, job: ModelJob, moment: datetime) -> None:
        job.run_at = moment
        self.retimed.add(job.id)

    # Chains

    def members(self, chain: UUID) -> list[ModelJob]:
        jobs = [job for job in self.jobs.values() if job.chain_id == chain]
        return sorted(jobs, key=lambda job: job.chain_index)

    def chains_of(self, batch: Sequence[NewJob]) -> dict[UUID, UUID]:
        """The chain of each job that somebody in the batch waits for. A job that is there already waits for what it
        waits for, whatever has become of that."""
        chains = {new.id: new.chain_id or new.id for new in batch} | {id: job.chain_id for id, job in self.jobs.items()}
        waiting = [new for new in batch if new.id not in self.jobs]
        if any(blocker not in chains for new in waiting for blocker in new.blockers):
            raise Missing
        return chains

    # Those that wait

    def is_missed(self, id: UUID) -> bool:
        """Whether a job of that id is gone, and its chain goes on without it, or someone waits for it."""
        return id not in self.jobs and (self.is_awaited(id) or bool(self.members(id)))

    def is_awaited(self, chain: UUID) -> bool:
        return any(edge.chain == chain for job in self.jobs.values() for edge in job.undone)

    def would_circle(self, chain: UUID, blockers: Iterable[UUID]) -> bool:
        """Whether a job of this chain that waits for those jobs' chains would wait for itself in the end."""
        ahead = {self.jobs[id].chain_id for id in blockers}
        reached: set[UUID] = set()
        while ahead - reached:
            reached |= ahead
            waiting = [job for job in self.jobs.values() if job.chain_id in ahead and job.state == BLOCKED]
            ahead = {edge.chain for job in waiting for edge in job.undone}
        return chain in reached

    def complete_chain(self, chain: UUID, output: str | None) -> None:
        for job in self.jobs.values():
            for edge in job.undone:
                if edge.chain == chain:
                    edge.done, edge.output = True, output
            if not job.arriving:
                self._free(job)

    def _free(self, job: ModelJob) -> None:
        if job.state == BLOCKED and not job.undone:
            job.state = PENDING
            self.set_time(job, max(job.run_at, self.now))

    # Lines

    def head(self, line: Key) -> ModelJob | None:
        return next((job for job in self._of(line, HEAD)), None)

    def _of(self, line: Key, lane: int) -> list[ModelJob]:
        live = [job for job in self.jobs.values() if job.state in LIVE]
        return [job for job in live if job.line == line and job.lane == lane]

    def promote(self, line: Key | None) -> None:
        if line is not None and self.head(line) is None and (waiting := self._of(line, IN_LINE)):
            min(waiting, key=lambda job: job.place).lane = HEAD

    def lines(self) -> list[Key]:
        return sorted({job.line for job in self.jobs.values() if job.line is not None})

    # Letting in

    def admit(self) -> None:
        for job in [job for job in self.jobs.values() if job.arriving and job.state == BLOCKED]:
            for edge in job.undone:
                self._look_at_end(edge)
            job.arriving = False
            self._free(job)
        now = self.now
        due = [job for job in self.jobs.values() if job.state == PENDING and job.lane == NOT_DUE and job.run_at <= now]
        for job in sorted(due, key=lambda job: (job.run_at, job.arrival)):
            job.lane, job.place = IN_LINE, self.next_number()
            self.promote(job.line)

    def _look_at_end(self, edge: Edge) -> None:
        members = self.members(edge.chain)
        if members and members[-1].state == COMPLETED:
            edge.done, edge.output = True, members[-1].output

    # Deleting

    def refused(self, chains: Collection[UUID]) -> dict[UUID, State]:
        """Those that must stay, and why: one that runs, one that another waits for which stays."""
        refused: dict[UUID, State] = {}
        for chain in chains:
            if any(job.state == RUNNING for job in self.members(chain)):
                refused[chain] = RUNNING
        while more := set(self._awaited(chains, refused)) - refused.keys():
            refused |= {chain: self.members(chain)[-1].state for chain in more}
        return refused

    def _awaited(self, chains: Collection[UUID], refused: Collection[UUID]) -> Iterable[UUID]:
        for job in self.jobs.values():
            if job.state in LIVE and (job.chain_id not in chains or job.chain_id in refused):
                yield from (edge.chain for edge in job.undone if edge.chain in chains)

"""The test bench for a store: it makes jobs with useful defaults, drives operations and moves the clock."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Barrier
from typing import Any, NamedTuple, TypeVar
from uuid import UUID, uuid4

import msgspec
from uuid_utils.compat import uuid7

from ..backoff import Fixed
from ..job import Job, NewJob
from ..lifecycle import PENDING, State
from ..operation import Operation
from ..outcome import Cancel, Fail, Settlement, decide, give_back
from ..policy import Policy
from ..stores.store import (
    Blocker,
    Bookmark,
    ChainRecord,
    Change,
    ClaimRequest,
    Counts,
    Enqueued,
    Filter,
    Lease,
    Refusal,
    Renewal,
    Store,
)
from ..unique import Unique

T = TypeVar("T")

# The default policy of the jobs: a retry is due at once, and finished jobs are kept longer than the test runs.
POLICY = Policy(max_attempts=5, lease_seconds=60, keep_seconds=86_400, backoff=Fixed(0))
BY_NAME = {"max_attempts": None, "lease_seconds": None, "keep_seconds": None, "policy": None}
ENDS: dict[State, object] = {"completed": '"done"', "failed": Fail("no use"), "cancelled": Cancel("not wanted")}


def columns(policy: Policy) -> dict[str, Any]:
    """The policy as the columns of a new job."""
    return {
        "max_attempts": policy.max_attempts,
        "lease_seconds": policy.lease_seconds,
        "keep_seconds": policy.keep_seconds,
        "policy": msgspec.json.encode(policy.details()).decode(),
    }


def new_job(*, unique: Unique | None = None, priority: int = 0, **fields: Any) -> NewJob:
    """A job that is due at once. If `id` is given, it counts as the caller's own id."""
    given: dict[str, Any] = {"id": uuid7(), "type": "task", "queue": "default", "input": "{}", **columns(POLICY)}
    if unique is not None:
        given |= {"unique_key": unique.key, "unique_until": unique.kind, "on_conflict": unique.on_conflict}
        given["window_seconds"] = unique.window_seconds
        given["unique_scope"] = fields.get("type", given["type"]) if unique.scope == "type" else ""
    return NewJob(**given | {"rank": -priority, "id_given": "id" in fields} | fields)


FACTS = (
    "id type queue tenant state priority run_at created_at input_json output_json error attempt policy finished_at "
    "expires_at claimed_at lease_expires_at worker cancel_requested labels unique_key order_key chain_id chain_index "
    "attempts trace"
).split()


def facts(job: Job) -> dict[str, object]:
    """All fields of a job, to compare two jobs: jobs with the same id are equal."""
    return {name: getattr(job, name) for name in FACTS}


class Held(NamedTuple):
    """A claimed job with its token. Its methods make the settlements that its holder can send."""

    job: Job
    token: UUID

    @property
    def id(self) -> UUID:
        return self.job.id

    def completes(self, output: str = "null") -> Settlement:
        return decide(self.job, self.token, output, random=lambda: 0.5)

    def raises(self, error: BaseException) -> Settlement:
        return decide(self.job, self.token, error, random=lambda: 0.5, ended_at=self.job.claimed_at)

    def gives_back(self) -> Settlement:
        return give_back(self.job, self.token)

    def ends(self, state: State) -> Settlement:
        result = ENDS[state]
        return self.raises(result) if isinstance(result, BaseException) else self.completes(str(result))

    def lease(self, seconds: float = 60) -> Lease:
        return Lease(self.job.id, self.token, seconds)


class Bench:
    """One store, with short methods for the operations that the tests use."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def run(self, make: Callable[[], Operation[T]]) -> T:
        return self.store.connections.run(make)

    def pass_time(self, **length: float) -> None:
        """Move the store's clock: `pass_time(minutes=5)`."""
        self.store.clock.move(timedelta(**length))

    def at_once(self, count: int, act: Callable[[int], T]) -> list[T]:
        """Call `act` in many threads that start together. Return the answers, or raise the first error."""
        barrier = Barrier(count)

        def start(number: int) -> T:
            barrier.wait()
            return act(number)

        with ThreadPoolExecutor(count) as threads:
            return list(threads.map(start, range(count)))

    # Adding

    def enqueue(self, *jobs: NewJob, resent: bool = False) -> list[Enqueued]:
        return self.run(lambda: self.store.enqueue(jobs, resent=resent))

    def enqueue_one(self, **fields: Any) -> Enqueued:
        (answer,) = self.enqueue(new_job(**fields))
        return answer

    def add(self, **fields: Any) -> Job:
        """Enqueue a job, and check that it is created."""
        answer = self.enqueue_one(**fields)
        assert answer.created
        return answer.job

    def add_many(self, count: int, **fields: Any) -> list[Job]:
        return [answer.job for answer in self.enqueue(*(new_job(**fields) for _ in range(count)))]

    # Claiming and settling

    def claim(self, limit: int = 10, queue: str = "default", worker: str = "worker", **request: Any) -> list[Held]:
        token = uuid4()
        asked = ClaimRequest(queue=queue, limit=limit, token=token, worker=worker, **request)
        return [Held(job, token) for job in self.run(lambda: self.store.claim(asked))]

    def admit(self) -> None:
        """Admit jobs until no job waits for admission, as a worker does."""
        while self.run(lambda: self.store.admit(100)).jobs:
            pass

    def blockers(self, job: Job) -> list[Blocker]:
        return self.run(lambda: self.store.blockers([job.id])).get(job.id, [])

    def claim_one(self, **request: Any) -> Held:
        """Claim the next job. There must be one."""
        (held,) = self.claim(1, **request)
        return held

    def hold(self, **fields: Any) -> Held:
        """Add a job to its own queue, and claim it."""
        queue = uuid4().hex
        self.add(**{"queue": queue} | fields)
        return self.claim_one(queue=fields.get("queue", queue))

    def settle(self, *settlements: Settlement) -> list[Refusal]:
        return self.run(lambda: self.store.settle(settlements))

    def accept(self, *settlements: Settlement) -> None:
        """Settle, and check that no settlement is refused."""
        assert self.settle(*settlements) == []

    def finish(self, state: State = "completed", **fields: Any) -> Job:
        """Make a job that has ended in this state."""
        held = self.hold(**fields)
        self.accept(held.ends(state))
        return held.job

    def send_back(self, held: Held, delay_seconds: float = 0) -> None:
        self.accept(Settlement(id=held.id, token=held.token, state=PENDING, delay_seconds=delay_seconds))

    def renew(self, *leases: Lease) -> list[Renewal]:
        return self.run(lambda: self.store.renew(leases))

    def rescue(self, limit: int = 100, **options: Any) -> list[Settlement]:
        return self.run(lambda: self.store.rescue(limit, **options))

    def expire(self, limit: int = 100) -> list[Settlement]:
        return self.run(lambda: self.store.expire(limit))

    # Reading

    def get(self, *ids: UUID) -> list[Job]:
        return self.run(lambda: self.store.get(ids))

    def look(self, job: Job | Held | UUID) -> Job:
        """The current state of the job. The job must exist."""
        (found,) = self.get(job if isinstance(job, UUID) else job.id)
        return found

    def find(self, limit: int = 1000, before: Job | None = None, **filter: Any) -> list[Job]:
        bookmark = None if before is None else Bookmark.of(before)
        return self.run(lambda: self.store.list(Filter(**filter), limit, bookmark))

    def pages(self, limit: int, **filter: Any) -> Iterator[list[Job]]:
        """The pages of a list. Each is read when the caller asks for it."""
        before: Job | None = None
        while page := self.find(limit, before, **filter):
            yield page
            before = page[-1]

    def dependents(self, chain: UUID, limit: int = 1000, after: UUID | None = None) -> list[UUID]:
        return [job.id for job in self.run(lambda: self.store.dependents(chain, limit, after))]

    def chains(self, limit: int = 1000, before: UUID | None = None, **filter: Any) -> list[ChainRecord]:
        return self.run(lambda: self.store.chains(Filter(**filter), limit, before))

    def counts(self) -> Counts:
        return self.run(self.store.counts)

    # Acting

    def cancel(self, *jobs: Job | Held | UUID) -> list[Change]:
        return self.run(lambda: self.store.cancel(ids_of(jobs)))

    def retry(self, *jobs: Job | Held | UUID) -> list[Change]:
        return self.run(lambda: self.store.retry(ids_of(jobs)))

    def run_now(self, *jobs: Job | Held | UUID) -> list[Change]:
        return self.run(lambda: self.store.run_now(ids_of(jobs)))

    def delete(self, *jobs: Job | Held | UUID) -> list[Change]:
        return self.run(lambda: self.store.delete(ids_of(jobs)))

    def delete_cascade(self, *jobs: Job | Held | UUID) -> list[Change]:
        return self.run(lambda: self.store.delete(ids_of(jobs), cascade=True))

    def prune(self) -> int:
        """Prune until nothing is left to prune, as maintenance does. Return the number of deleted jobs."""
        return sum(iter(lambda: self.run(lambda: self.store.prune(100)), 0))


def ids_of(jobs: Sequence[Job | Held | UUID]) -> Sequence[UUID]:
    return [job if isinstance(job, UUID) else job.id for job in jobs]

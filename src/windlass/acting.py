"""Reading jobs and acting on them: the part of the public face that needs no task."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID, uuid4

from msgspec.structs import replace

from .call import check_id, check_moment, check_name
from .clock import from_microseconds, to_microseconds
from .errors import Conflict, InvalidInput, JobNotFound
from .job import Job
from .lifecycle import CANCELLED, COMPLETED, FAILED, LIVE, STATES, Event, State, why_not
from .operation import Operation
from .outcome import Settlement, describe_error, encode_error
from .stores.store import Bookmark, Change, Counts, Filter, Store, WorkerInfo
from .stores.urls import without_password
from .stores.wakeup import Hint
from .sweeping import Chunk, Sweep
from .twins import twins

T = TypeVar("T")

PAGE_LIMIT = 1000
CHUNK = 500  # jobs that are acted on in one transaction


class Page(Sequence[Job]):
    """Jobs, newest first; `next_cursor` asks for those that follow, and is None at the end."""

    def __init__(self, jobs: list[Job], next_cursor: str | None) -> None:
        self.jobs, self.next_cursor = jobs, next_cursor

    def __getitem__(self, index: Any) -> Any:
        return self.jobs[index]

    def __len__(self) -> int:
        return len(self.jobs)

    def __iter__(self) -> Iterator[Job]:
        return iter(self.jobs)

    def __repr__(self) -> str:
        return f"<Page of {len(self.jobs)} jobs{', more follow' if self.next_cursor else ''}>"


def make_filter(
    state: str | None, type: str | None, queue: str | None, tenant: str | None, chain: UUID | str | None,
    since: datetime | None = None, unique: str | None = None,
) -> Filter:  # fmt: skip
    if state is not None and state not in STATES:
        raise InvalidInput(f"state {state!r}: one of {', '.join(STATES)}")
    for what, name in (("type", type), ("queue", queue), ("tenant", tenant or None)):
        if name is not None:
            check_name(what, name)
    if unique is not None:
        check_name("unique", unique)
        tenant = tenant or ""  # a key belongs to one tenant, or to none
    return Filter(
        state=state,
        type=type,
        queue=queue,
        tenant=tenant,
        chain=None if chain is None else check_id(chain),
        since=None if since is None else check_moment("since", since),
        unique=unique,
    )


class Acting:
    """Part of `Windlass`."""

    url: str
    store: Store

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {without_password(self.url)}>"

    def run_operation(self, make: Callable[[], Operation[T]]) -> T:
        raise NotImplementedError

    async def arun_operation(self, make: Callable[[], Operation[T]]) -> T:
        raise NotImplementedError

    def bind(self, job: Job) -> Job:
        raise NotImplementedError

    # Reading

    def _get(self, id: UUID | str) -> Operation[Job | None]:
        """The job, or None."""
        found = yield from self.store.get([check_id(id)])
        return self.bind(found[0]) if found else None

    get, aget = twins(_get)

    def _require(self, id: UUID | str) -> Operation[Job]:
        """The job; `JobNotFound` where there is none."""
        job = yield from self._get(id)
        if job is None:
            raise JobNotFound(f"there is no job {id}: it never was, was deleted, or is no longer kept")
        return job

    require, arequire = twins(_require)

    def _counts(self) -> Operation[Counts]:
        """How many jobs there are, by state; `.tallies` by queue and type. Cheap at any size."""
        return (yield from self.store.counts())

    counts, acounts = twins(_counts)

    # Acting on one

    def _act(self, event: Event, id: UUID | str) -> Operation[Change]:
        operation = _OPERATIONS[event](self.store)
        (change,) = yield from operation([check_id(id)])
        if change.state is None:
            raise JobNotFound(f"there is no job {id}: it never was, was deleted, or is no longer kept")
        if not change.done and not (event == "cancel" and change.state == "cancelled"):
            taken = event == "bring back" and change.state in ("failed", "cancelled")
            reason = "another job holds its unique key by now" if taken else why_not(event, change.state)
            raise Conflict(f"job {id}: {change.reason or reason}")
        yield from self._tell(event, [change])
        return change

    def _tell(self, event: Event, changes: Sequence[Change]) -> Operation[None]:
        """Hints for what became due, and for workers that should stop."""
        if event in ("bring back", "run now"):
            hints = {Hint("ready", change.queue) for change in changes if change.done and change.queue}
        elif event == "cancel":
            hints = {Hint("told", str(change.id)) for change in changes if change.done and change.state == "running"}
        else:
            return
        yield from self.store.hint(sorted(hints, key=Hint.encode))

    def _cancel(self, id: UUID | str) -> Operation[Job]:
        """Not to run, or not any more. For a running job it is a request, which its worker carries out."""
        before = yield from self._require(id)
        yield from self._act("cancel", id)
        # What is kept for no time is gone by now.
        return (yield from self._get(id)) or self.bind(replace(before, state=CANCELLED))

    cancel, acancel = twins(_cancel)

    def _retry(self, id: UUID | str) -> Operation[Job]:
        """Bring a failed or cancelled job back, due now, with all its attempts."""
        yield from self._act("bring back", id)
        return (yield from self._require(id))

    retry, aretry = twins(_retry)

    def _run_now(self, id: UUID | str) -> Operation[Job]:
        """Do not wait for its time."""
        yield from self._act("run now", id)
        return (yield from self._require(id))

    run_now, arun_now = twins(_run_now)

    def _complete(self, id: UUID | str, output: Any = None) -> Operation[Job]:
        """Completed by someone who is no worker: a person, a webhook. A worker that runs it is told to stop."""
        given = self._encode_output((yield from self._require(id)), output)
        return (yield from self._end(id, "complete", lambda id, token: _completed(id, token, given)))

    complete, acomplete = twins(_complete)

    def _fail(self, id: UUID | str, error: BaseException | str) -> Operation[Job]:
        """Failed for good, by someone who is no worker."""
        text = encode_error(describe_error(error))
        return (
            yield from self._end(id, "fail", lambda id, token: Settlement(id=id, token=token, state=FAILED, error=text))
        )

    fail, afail = twins(_fail)

    def _end(
        self, id: UUID | str, event: Event, settlement: Callable[[UUID, UUID | None], Settlement]
    ) -> Operation[Job]:
        """Whoever runs it loses it first; one that waits is ended as it is."""
        job = yield from self._require(id)
        token = uuid4()
        seized = yield from self.store.seize([job.id], token)
        refusals = yield from self.store.settle([settlement(job.id, token if seized else None)])
        if refusals:
            now = yield from self._require(id)
            raise Conflict(f"job {id}: {why_not(event, now.state)}")
        if seized:
            yield from self.store.hint([Hint("told", str(job.id))])
        if job.policy is not None and job.policy.keep_seconds == 0:
            ended = settlement(job.id, token)
            return self.bind(replace(job, state=ended.state, output_json=ended.output))
        return (yield from self._require(id))

    def _encode_output(self, job: Job, output: Any) -> str:
        raise NotImplementedError

    def _delete(self, id: UUID | str) -> Operation[None]:
        """Remove it and the unique keys that it holds. Not while it runs."""
        yield from self._act("delete", id)

    delete, adelete = twins(_delete)

    # Acting on many: chunk by chunk, each a transaction of its own

    def _chunk(self, event: Event, sweep: Sweep) -> Operation[Chunk]:
        jobs = yield from self.store.list(sweep.filters[0], CHUNK, sweep.before)
        changes = yield from _OPERATIONS[event](self.store)(sorted(job.id for job in jobs))
        yield from self._tell(event, changes)
        waited_for = sum(not change.done and change.reason is not None for change in changes)
        last = Bookmark.of(jobs[-1]) if len(jobs) == CHUNK else None
        return Chunk(sum(change.done for change in changes), waited_for, last)

    def _all(self, event: Event, filters: Sequence[Filter]) -> int:
        sweep = Sweep(filters)
        while sweep.filters:
            sweep.took(self.run_operation(lambda: self._chunk(event, sweep)))
        return sweep.done

    async def _aall(self, event: Event, filters: Sequence[Filter]) -> int:
        sweep = Sweep(filters)
        while sweep.filters:
            sweep.took(await self.arun_operation(lambda: self._chunk(event, sweep)))
        return sweep.done

    def cancel_many(self, **filter: Any) -> int:
        """Cancel all that match (state, type, queue, tenant, chain, since; or all=True): how many."""
        return self._all("cancel", _filters(filter, sorted(LIVE)))

    async def acancel_many(self, **filter: Any) -> int:
        return await self._aall("cancel", _filters(filter, sorted(LIVE)))

    def retry_many(self, **filter: Any) -> int:
        """Bring back all that match; the failed ones if no state is given."""
        return self._all("bring back", _filters(filter, ["failed"]))

    async def aretry_many(self, **filter: Any) -> int:
        return await self._aall("bring back", _filters(filter, ["failed"]))

    def run_now_many(self, **filter: Any) -> int:
        return self._all("run now", _filters(filter, ["pending"]))

    async def arun_now_many(self, **filter: Any) -> int:
        return await self._aall("run now", _filters(filter, ["pending"]))

    def delete_many(self, **filter: Any) -> int:
        """Delete all that match, are not running, and are waited for by none but each other."""
        return self._all("delete", _filters(filter, [None]))

    async def adelete_many(self, **filter: Any) -> int:
        return await self._aall("delete", _filters(filter, [None]))

    # Queues and upkeep

    def _pause(self, queue: str) -> Operation[None]:
        """Let nothing of this queue be claimed until it is resumed. What runs goes on."""
        yield from self.store.pause(check_name("queue", queue))

    pause, apause = twins(_pause)

    def _resume(self, queue: str) -> Operation[None]:
        yield from self.store.resume(check_name("queue", queue))
        yield from self.store.hint([Hint("ready", queue)])

    resume, aresume = twins(_resume)

    def _paused(self) -> Operation[list[str]]:
        """The names of the paused queues."""
        return (yield from self.store.paused())

    paused, apaused = twins(_paused)

    def _workers(self) -> Operation[list[WorkerInfo]]:
        """The workers that are alive: host, pid, queues, how many jobs they run."""
        return (yield from self.store.workers())

    workers, aworkers = twins(_workers)

    def rescue_some(self, limit: int, stale_before: datetime | None = None) -> Operation[list[Settlement]]:
        """Whoever still runs what is taken from it is told."""
        settlements = yield from self.store.rescue(limit, stale_before=stale_before)
        yield from self.store.hint([Hint("told", str(settlement.id)) for settlement in settlements])
        return settlements

    def rescue(self, stale_before: datetime | None = None) -> int:
        """Give back what dead workers hold: whose lease is over or, with `stale_before`, who was last heard of
        before that. Workers do this by themselves."""
        return _repeat(lambda: len(self.run_operation(lambda: self.rescue_some(CHUNK, stale_before))))

    async def arescue(self, stale_before: datetime | None = None) -> int:
        total = 0
        while settlements := await self.arun_operation(lambda: self.rescue_some(CHUNK, stale_before)):
            total += len(settlements)
        return total

    def expire(self) -> int:
        """Cancel what was not started in time (`expires=`): how many. Workers do this by themselves."""
        return _repeat(lambda: len(self.run_operation(lambda: self.store.expire(CHUNK))))

    async def aexpire(self) -> int:
        total = 0
        while settlements := await self.arun_operation(lambda: self.store.expire(CHUNK)):
            total += len(settlements)
        return total

    def prune(self) -> int:
        """Remove finished jobs whose time to be kept is over: how many. Workers do this by themselves."""
        return _repeat(lambda: self.run_operation(lambda: self.store.prune(CHUNK * 10)))

    async def aprune(self) -> int:
        total = 0
        while count := await self.arun_operation(lambda: self.store.prune(CHUNK * 10)):
            total += count
        return total

    def _vacuum(self) -> Operation[None]:
        """Reclaim space now."""
        yield from self.store.vacuum()

    vacuum, avacuum = twins(_vacuum)

    # Last, since from here on `list` means this.
    def _list(
        self,
        state: State | str | None = None,
        type: str | None = None,
        queue: str | None = None,
        tenant: str | None = None,
        chain: UUID | str | None = None,
        limit: int = 100,
        cursor: str | None = None,
        since: datetime | None = None,
        unique: str | None = None,
    ) -> Operation[Page]:
        """A page of jobs, newest first; of failed or cancelled ones, the one that ended last. `unique`: the job that
        holds this key of the `tenant` (without one: of no tenant), and with which a new one would be in conflict."""
        if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= PAGE_LIMIT:
            raise InvalidInput(f"limit is a number from 1 to {PAGE_LIMIT}, not {limit!r}")
        filter = make_filter(state, type, queue, tenant, chain, since, unique)
        before = None if cursor is None else _read_cursor(cursor, filter)
        found = yield from self.store.list(filter, limit + 1, before)
        jobs = [self.bind(job) for job in found[:limit]]
        return Page(jobs, _cursor(jobs[-1], filter) if len(found) > limit else None)

    list, alist = twins(_list)


_OPERATIONS: dict[Event, Callable[[Store], Callable[[Sequence[UUID]], Operation[list[Change]]]]] = {
    "cancel": lambda store: store.cancel,
    "bring back": lambda store: store.retry,
    "run now": lambda store: store.run_now,
    "delete": lambda store: store.delete,
}


def _repeat(step: Callable[[], int]) -> int:
    return sum(iter(step, 0))


def _filters(given: dict[str, Any], states: Sequence[str | None]) -> list[Filter]:
    names = ("state", "type", "queue", "tenant", "chain", "since", "unique")
    unknown = given.keys() - {*names, "all"}
    if unknown:
        raise InvalidInput(f"unknown filter {', '.join(sorted(unknown))}; there are: {', '.join(names)}, all")
    every = given.get("all", False)
    if not isinstance(every, bool):
        raise InvalidInput(f"all is True or False, not {every!r}")
    if every == any(given.get(name) is not None for name in names):
        said = (
            "give a filter or all=True, not both" if every else "no filter is given: to act on all jobs, say all=True"
        )
        raise InvalidInput(said)
    chosen = [given["state"]] if given.get("state") is not None else states
    return [make_filter(state, *(given.get(name) for name in names[1:])) for state in chosen]


def _cursor(job: Job, filter: Filter) -> str:
    """Where the next page begins: behind this job."""
    ended = job.finished_at if filter.by_end else None
    return job.id.hex if ended is None else f"{job.id.hex}-{to_microseconds(ended)}"


def _read_cursor(cursor: str, filter: Filter) -> Bookmark:
    try:
        id, _, ended = cursor.partition("-") if filter.by_end else (cursor, "", "")
        return Bookmark(UUID(id), from_microseconds(int(ended)) if filter.by_end else None)
    except (ValueError, TypeError, AttributeError, OverflowError):
        raise InvalidInput(f"cursor {cursor!r} is not one that a page of this list has given") from None


def _completed(id: UUID, token: UUID | None, output: str) -> Settlement:
    return Settlement(id=id, token=token, state=COMPLETED, output=output)

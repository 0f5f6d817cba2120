"""Read jobs: one, a page of them, how many there are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from .call import KEY_LIMIT, check_id, check_moment, check_name
from .clock import from_microseconds, to_microseconds
from .engine import Engine
from .errors import InvalidInput
from .job import Job, no_job
from .lifecycle import STATES, State
from .operation import Operation
from .policy import UNSET
from .stores.store import Bookmark, Counts, Filter

PAGE_LIMIT = 1000


class Page(Sequence[Job]):
    """Jobs, newest first. `next_cursor` asks for the next page, and is None at the end."""

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


def get(engine: Engine, id: UUID | str, *, connection: Any = UNSET) -> Operation[Job | None]:
    """The job, or None; with `connection`, as that transaction sees it."""
    found = yield from engine.store.get([check_id(id)])
    return engine.bind(found[0]) if found else None


def require(engine: Engine, id: UUID | str) -> Operation[Job]:
    """The job; `JobNotFound` where there is none."""
    job = yield from get(engine, id)
    if job is None:
        raise no_job(id)
    return job


def counts(engine: Engine) -> Operation[Counts]:
    """How many jobs there are, by state; `.tallies` by queue and type. Cheap at any size."""
    return (yield from engine.store.counts())


def list_(
    engine: Engine,
    state: State | str | None = None,
    type: str | None = None,
    queue: str | None = None,
    tenant: str | None = None,
    chain: UUID | str | None = None,
    limit: int = 100,
    cursor: str | None = None,
    since: datetime | None = None,
    unique: str | None = None,
    *,
    connection: Any = UNSET,
) -> Operation[Page]:
    """A page of jobs, newest first; failed or cancelled jobs by their end, the last first. `unique`: the job that holds
    this key of the `tenant` (without one: of no tenant), so that a new job would be in conflict with it. With
    `connection`, as that transaction sees them."""
    check_limit(limit)
    filter = make_filter(state, type, queue, tenant, chain, since, unique)
    before = None if cursor is None else _read_cursor(cursor, filter)
    found = yield from engine.store.list(filter, limit + 1, before)
    jobs = [engine.bind(job) for job in found[:limit]]
    return Page(jobs, _cursor(jobs[-1], filter) if len(found) > limit else None)


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
        check_name("unique", unique, KEY_LIMIT)
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


def check_limit(limit: int) -> None:
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= PAGE_LIMIT:
        raise InvalidInput(f"limit is a number from 1 to {PAGE_LIMIT}, not {limit!r}")


def _cursor(job: Job, filter: Filter) -> str:
    """The next page begins after this job."""
    ended = job.finished_at if filter.by_end else None
    return job.id.hex if ended is None else f"{job.id.hex}-{to_microseconds(ended)}"


def _read_cursor(cursor: str, filter: Filter) -> Bookmark:
    try:
        id, _, ended = cursor.partition("-") if filter.by_end else (cursor, "", "")
        return Bookmark(UUID(id), from_microseconds(int(ended)) if filter.by_end else None)
    except (ValueError, TypeError, AttributeError, OverflowError):
        raise InvalidInput(f"cursor {cursor!r} is not one that a page of this list has given") from None

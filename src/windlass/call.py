"""A call for later: the task, its arguments and its options. `enqueue` makes a job of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Generic, TypeAlias, get_args
from uuid import UUID

import msgspec

from . import codec
from .backoff import Backoff, as_backoff
from .duration import Duration, to_seconds
from .errors import InvalidInput
from .generics import R_co
from .job import IfFailed, Job, NewJob
from .lifecycle import BLOCKED
from .policy import DEFAULT, UNSET, Policy, Unset, attempts_option, keep_option, partial_json, seconds_option
from .unique import Unique, as_unique

NAME_LIMIT = 200  # characters of a queue's, a type's or a tenant's name
KEY_LIMIT = 500
BYTES_EACH = 2  # of UTF-8, on average: a row of an index holds 2,700 bytes, and a tenant, a type and a key go into one

Columns: TypeAlias = tuple[int | None, float | None, int | None, str | None]  # a policy, as a row has it


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `using(…)`, for one job; UNSET where the option of the task holds."""

    id: UUID | None = None
    run_at: datetime | None = None
    delay: Duration | None = None
    priority: int | Unset = UNSET
    queue: str | Unset = UNSET
    tenant: str = ""
    labels: Mapping[str, str] | None = None
    unique: Unique | str | None = None
    max_attempts: int | Unset | None = UNSET
    backoff: Backoff | Duration | Unset = UNSET
    timeout: Duration | Unset | None = UNSET
    lease: Duration | Unset = UNSET
    expires: datetime | Duration | None = None
    order_key: str | None = None
    after: Sequence[Job | UUID | str] | Unset = UNSET
    if_failed: IfFailed | None = None
    keep: Duration | Unset | None = UNSET

    def updated(self, changes: Mapping[str, Any]) -> Options:
        unknown = changes.keys() - set(self.__struct_fields__)
        if unknown:
            known = ", ".join(self.__struct_fields__)
            raise InvalidInput(f"unknown option {', '.join(sorted(unknown))}; there are: connection, {known}")
        return msgspec.structs.replace(self, **changes)

    def overrides_policy(self) -> bool:
        given = (self.max_attempts, self.backoff, self.timeout, self.lease, self.keep)
        return not all(isinstance(value, Unset) for value in given)

    def policy(self, task: Policy) -> Policy:
        """The policy of the task, with the options of this job in its place."""
        if not self.overrides_policy():
            return task
        return Policy(
            max_attempts=attempts_option(self.max_attempts, task.max_attempts),
            lease_seconds=seconds_option("lease", self.lease, task.lease_seconds) or task.lease_seconds,
            keep_seconds=keep_option(self.keep, task.keep_seconds),
            backoff=task.backoff if isinstance(self.backoff, Unset) else as_backoff(self.backoff),
            timeout_seconds=seconds_option("timeout", self.timeout, task.timeout_seconds),
            redact=task.redact,
        )

    def given_columns(self) -> Columns:
        """The columns of a job whose task is not known here: the given options alone. The worker that claims the job
        knows the others."""
        if not self.overrides_policy():
            return None, None, None, None
        chosen, details = self.policy(DEFAULT), {}
        if not isinstance(self.backoff, Unset):
            details["backoff"] = chosen.details()["backoff"]
        if not isinstance(self.timeout, Unset):
            details["timeout"] = chosen.timeout_seconds
        return (
            None if isinstance(self.max_attempts, Unset) else chosen.max_attempts,
            None if isinstance(self.lease, Unset) else chosen.lease_seconds,
            None if isinstance(self.keep, Unset) else chosen.keep_seconds,
            partial_json(details),
        )


NO_OPTIONS = Options()


class Call(msgspec.Struct, Generic[R_co], frozen=True, kw_only=True):
    """One call of a task, its arguments encoded. Enqueued twice, it is two jobs. `Call[R]`: its handler returns R."""

    type: str
    input: str
    queue: str = "default"
    priority: int = 0
    policy: Policy | None = None  # None: not known here; the worker that claims the job knows
    options: Options = NO_OPTIONS

    def new_job(self, make_id: Callable[[], UUID]) -> NewJob:
        options = self.options
        if options is NO_OPTIONS:
            columns: Columns = _policy_columns(self.policy) if self.policy is not None else (None, None, None, None)
            return NewJob(
                id=make_id(), type=self.type, queue=self.queue, input=self.input, rank=-self.priority,
                max_attempts=columns[0], lease_seconds=columns[1], keep_seconds=columns[2], policy=columns[3],
            )  # fmt: skip
        job = NewJob(
            id=make_id() if options.id is None else check_id(options.id),
            id_given=options.id is not None,
            type=self.type,
            queue=self.queue if isinstance(options.queue, Unset) else check_name("queue", options.queue),
            input=self.input,
            rank=-(self.priority if isinstance(options.priority, Unset) else check_priority(options.priority)),
        )
        columns = _policy_columns(options.policy(self.policy)) if self.policy is not None else options.given_columns()
        job.max_attempts, job.lease_seconds, job.keep_seconds, job.policy = columns
        _apply(options, job)
        return job


def _apply(options: Options, job: NewJob) -> None:
    """Copy the options that are rarely given."""
    if options.run_at is not None:
        job.run_at = check_moment("run_at", options.run_at)
    if options.delay is not None:
        if job.run_at is not None:
            raise InvalidInput("give run_at= or delay=, not both")
        job.delay_seconds = to_seconds(options.delay)
    if options.tenant != "":
        job.tenant = check_name("tenant", options.tenant)
    if options.labels is not None:
        job.labels = _check_labels(options.labels)
    if isinstance(options.expires, datetime):
        job.expires_at = check_moment("expires", options.expires)
    elif options.expires is not None:
        job.expires_seconds = to_seconds(options.expires)
    if options.order_key is not None:
        job.order_key = check_name("order_key", options.order_key, KEY_LIMIT)
    if not isinstance(options.after, Unset):
        job.blockers = _check_after(options.after)
        job.state = BLOCKED if job.blockers else job.state
    if options.if_failed is not None:
        then = _check_if_failed(options)
        job.if_failed = then if job.blockers else None
    unique = as_unique(options.unique)
    if unique is not None:
        job.unique_key = check_name("unique key", unique.key, KEY_LIMIT)
        job.unique_until, job.on_conflict = unique.kind, unique.on_conflict
        job.unique_scope = job.type if unique.scope == "type" else ""
        job.window_seconds = unique.window_seconds
        if unique.max_wait is not None:
            _limit_wait(job)


def _limit_wait(job: NewJob) -> None:
    """The first of its key waits no longer either."""
    if job.run_at is not None:
        raise InvalidInput("max_wait counts from now, and so does delay=: give that, not run_at=")
    job.delay_seconds = min(job.delay_seconds, job.window_seconds or 0.0)


def _check_after(after: Sequence[Job | UUID | str]) -> tuple[UUID, ...]:
    if isinstance(after, str | Job | UUID) or not isinstance(after, Sequence):
        raise InvalidInput(f"after is a list of jobs, or of their ids, not {after!r}")
    return tuple(one.chain_id if isinstance(one, Job) else check_id(one) for one in after)


def _check_if_failed(options: Options) -> IfFailed | None:
    if options.if_failed not in get_args(IfFailed):
        raise InvalidInput(f"if_failed is 'wait', 'cancel' or 'run', not {options.if_failed!r}")
    if isinstance(options.after, Unset):
        raise InvalidInput(f"if_failed={options.if_failed!r} says what follows when a job of after= fails: give after=")
    return None if options.if_failed == "wait" else options.if_failed


_encoded: dict[Policy, Columns] = {}


def _policy_columns(policy: Policy) -> Columns:
    """The columns of the row. They are cached: a task has the same each time."""
    columns = _encoded.get(policy)
    if columns is None:
        columns = (policy.max_attempts, policy.lease_seconds, policy.keep_seconds, policy.details_json())
        if len(_encoded) < 1000:
            _encoded[policy] = columns
    return columns


def check_name(what: str, name: object, limit: int = NAME_LIMIT) -> str:
    """A text that every store can hold, and that is not too long for an index."""
    if not isinstance(name, str) or not name:
        raise InvalidInput(f"{what}: a string that is not empty is needed, not {name!r}")
    if len(name) > limit:
        raise InvalidInput(f"{what}: {len(name)} characters; {limit} at the most")
    try:
        codec.encode(name)
    except InvalidInput as error:
        raise InvalidInput(f"{what}: {error}") from None
    size = len(name.encode())
    if size > limit * BYTES_EACH:
        raise InvalidInput(f"{what}: {size} bytes of UTF-8; {limit * BYTES_EACH} at the most")
    return name


def check_names(what: str, names: Sequence[str] | None) -> None:
    """A list of names, or None for all. A string is refused: it would be a list of its letters."""
    if names is None:
        return
    if isinstance(names, str) or not isinstance(names, Sequence):
        raise InvalidInput(f"{what} is a list of names, not {names!r}")
    for name in names:
        check_name(what, name)


def check_priority(priority: object) -> int:
    if isinstance(priority, bool) or not isinstance(priority, int) or not -100 <= priority <= 100:
        raise InvalidInput(f"priority is a number from -100 to 100 (higher first), not {priority!r}")
    return priority


def check_moment(what: str, moment: object) -> datetime:
    if not isinstance(moment, datetime):
        raise InvalidInput(f"{what} is a datetime, not {moment!r}")
    if moment.tzinfo is None or moment.utcoffset() is None:
        raise InvalidInput(f"{what} {moment.isoformat()} has no timezone: which moment is meant?")
    try:
        moment.astimezone(UTC)
    except OverflowError:
        raise InvalidInput(f"{what} is a moment of the years 1 to 9999, in UTC") from None
    return moment


def check_id(id: object) -> UUID:
    if isinstance(id, UUID):
        return id
    try:
        return UUID(id)  # type: ignore[arg-type]
    except (TypeError, ValueError, AttributeError):
        raise InvalidInput(f"id is a UUID, not {id!r}") from None


def _check_labels(labels: Mapping[str, str]) -> str | None:
    if not isinstance(labels, Mapping) or not all(isinstance(text, str) for pair in labels.items() for text in pair):
        raise InvalidInput("labels map strings to strings")
    return codec.encode(dict(labels), 10_000) if labels else None


def check_blockers(jobs: Sequence[NewJob], limit: int) -> None:
    """No job waits for too many, for itself, or for one that waits for it. A circle is possible only in one batch: any
    other blocker exists before its dependents."""
    waits = {job.id: job.blockers for job in jobs if job.blockers}
    for job in jobs:
        if len(job.blockers) > limit:
            raise InvalidInput(
                f"{job.type}: after= names {len(job.blockers):,} jobs; {limit:,} at the most, unless "
                "Windlass(max_blockers=…) says otherwise"
            )
        if job.id in job.blockers:
            raise InvalidInput(f"{job.type}: job {job.id} is to wait for itself")
    done: set[UUID] = set()
    for start in waits:
        path: dict[UUID, None] = {}
        stack = [(start, iter(waits[start]))]
        path[start] = None
        while stack:
            id, left = stack[-1]
            following = next((one for one in left if one in waits and one not in done), None)
            if following is None:
                done.add(id)
                path.pop(id, None)
                stack.pop()
            elif following in path:
                raise InvalidInput(f"jobs {following} and {id} wait for each other")
            else:
                path[following] = None
                stack.append((following, iter(waits[following])))

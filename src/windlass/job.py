"""The values of a job: frozen, without I/O.

`NewJob` goes into a store, `Job` comes out of it. A `Job` is a snapshot; its methods ask the app that made it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, TypeVar, overload
from uuid import UUID

import msgspec

from .clock import from_microseconds
from .duration import Duration
from .errors import JobNotFound, WindlassError
from .generics import R_co, X
from .lifecycle import COMPLETED, FINISHED, PENDING, State
from .policy import Policy

if TYPE_CHECKING:
    from .app import Windlass
    from .outcome import Continue

ERROR_LIMIT = 10_000  # characters of a message or a traceback that are kept
ATTEMPTS_KEPT = 10

IfFailed: TypeAlias = Literal["wait", "cancel", "run"]


class JobError(msgspec.Struct, frozen=True):
    """Why an attempt ended badly."""

    type: str
    message: str
    traceback: str | None = None

    def __str__(self) -> str:
        return f"{self.type}: {self.message}" if self.message else self.type

    def __contains__(self, text: str) -> bool:
        return text in str(self)


class AttemptRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One of a job's past attempts."""

    number: int
    started_at: datetime | None
    ended_at: datetime | None
    worker: str | None
    error: JobError | None = None


class LogLine(msgspec.Struct, frozen=True):
    at: datetime
    text: str


class Notes(msgspec.Struct):
    """Progress and log of a running handler."""

    fraction: float | None = None
    text: str = ""
    log: list[LogLine] = msgspec.field(default_factory=list)


class NewJob(msgspec.Struct, kw_only=True, gc=False):
    """A job on its way into a store; the fields are named as the columns are. Payloads are JSON text.

    A job with `blockers` (ids of jobs whose chains it waits for) goes in as blocked.
    A `run_at` that has gone by means now, unless it is the tick of a schedule (`of_tick`): that is when it was due.
    `unique_scope` is the type for which the key counts; empty: for all types.
    `rank` is the negated priority, so that one ascending index serves claims and their cursor. The policy's four
    columns are None where the enqueuer does not know the task, or partial (`policy.PARTIAL`): the claim resolves them.
    Where it knows the task, `lease_seconds` has a value, and `keep_seconds` None means that no keep= was given.
    """

    id: UUID
    type: str
    queue: str
    input: str
    tenant: str = ""
    rank: int = 0
    run_at: datetime | None = None
    delay_seconds: float = 0.0
    labels: str | None = None
    max_attempts: int | None = None
    lease_seconds: float | None = None
    keep_seconds: int | None = None
    policy: str | None = None
    expires_at: datetime | None = None
    expires_seconds: float | None = None
    unique_key: str | None = None
    unique_scope: str = ""
    unique_until: str | None = None
    window_seconds: float | None = None
    on_conflict: str = "keep"
    chain_id: UUID | None = None
    chain_index: int = 0
    trace: str | None = None
    id_given: bool = False
    of_tick: bool = False
    state: State = PENDING
    order_key: str | None = None
    blockers: tuple[UUID, ...] = ()
    if_failed: IfFailed | None = None  # None: it waits
    chain_trace: str | None = None


# As a row has it: an int counts microseconds since 1970, bytes are PostgreSQL's own, microseconds since 2000.
Moment: TypeAlias = datetime | int | bytes
POSTGRES_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)


FIRST, LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)


def read_moment(raw: Moment) -> datetime:
    try:
        if isinstance(raw, bytes):
            return POSTGRES_EPOCH + timedelta(microseconds=int.from_bytes(raw, "big", signed=True))
        if isinstance(raw, int):
            return from_microseconds(raw)
        return raw if raw.tzinfo is UTC else raw.astimezone(UTC)
    except (OverflowError, AttributeError):
        return _nearest(raw)


def _nearest(raw: object) -> datetime:
    """The first or last moment of the calendar, for a value beyond it, such as PostgreSQL's infinity. The last one
    for a value that is no moment: a row that was written by hand must not stop a worker."""
    if isinstance(raw, bytes):
        raw = int.from_bytes(raw, "big", signed=True)
    if isinstance(raw, datetime):
        return FIRST if raw.year < 5000 else LAST
    return FIRST if isinstance(raw, int | float) and raw < 0 else LAST


def _read_moment(raw: Moment | None) -> datetime | None:
    return None if raw is None else read_moment(raw)


T = TypeVar("T")


def _decode(text: str | None, kind: type[T]) -> T | None:
    try:
        return msgspec.json.decode(text, type=kind) if text else None
    except (msgspec.MsgspecError, TypeError):  # in MongoDB a field may have any type
        return None


@lru_cache(maxsize=1024)
def read_policy(
    max_attempts: int | None, lease_seconds: float | None, keep_seconds: int | None, details: str | None
) -> Policy:
    return Policy.from_columns(max_attempts, lease_seconds, keep_seconds, details)


class Job(msgspec.Struct, Generic[R_co], frozen=True, gc=False):
    """A job as it was when it was read. `Job[R]` is one whose handler returns R, as far as a type checker can know.

    It is made of a row as it is: the fields have the order of the columns, and a property decodes its field at each
    access. A worker seldom needs that.
    """

    id: UUID
    type: str
    queue: str
    tenant: str
    state: State
    rank: int
    run_at_raw: Moment
    created_at_raw: Moment
    input_json: str
    attempt: int = 0
    max_attempts_raw: int | None = None
    lease_seconds_raw: float | None = None
    keep_seconds_raw: int | None = None
    policy_json: str | None = None
    labels_json: str | None = None
    error_json: str | None = None
    attempts_json: str | None = None
    expires_at_raw: Moment | None = None
    unique_key: str | None = None
    order_key: str | None = None
    root_id: UUID | None = None
    chain_index: int = 0
    trace: str | None = None
    progress_json: str | None = None
    claimed_at_raw: Moment | None = None
    worker: str | None = None
    lease_expires_at_raw: Moment | None = None
    cancel_requested: bool = False
    output_json: str | None = None
    finished_at_raw: Moment | None = None
    blockers_left: int | None = None
    if_failed_raw: IfFailed | None = None
    chain_trace: str | None = None
    created: bool = True
    _app: Any = None

    @property
    def priority(self) -> int:
        """Higher ones first."""
        return -self.rank

    @property
    def policy(self) -> Policy | None:
        """None for a job that was enqueued by name alone, without such options, and not claimed yet. Options that were
        not given are those of the default policy."""
        if self.max_attempts_raw is None and self.policy_json is None:
            return None
        return read_policy(self.max_attempts_raw, self.lease_seconds_raw, self.keep_seconds_raw, self.policy_json)

    # A value that cannot be decoded is left out: it must not stop the job.

    @property
    def labels(self) -> Mapping[str, str]:
        return _decode(self.labels_json, dict[str, str]) or {}

    @property
    def error(self) -> JobError | None:
        if self.error_json is None:
            return None
        return _decode(self.error_json, JobError) or JobError("Error", str(self.error_json))

    @property
    def attempts(self) -> Sequence[AttemptRecord]:
        return _decode(self.attempts_json, tuple[AttemptRecord, ...]) or ()

    @property
    def notes(self) -> Notes:
        """Progress and log so far: `notes.fraction`, `notes.text`, `notes.log`."""
        return _decode(self.progress_json, Notes) or Notes()

    @property
    def if_failed(self) -> IfFailed:
        """Its fate when a chain that it waits for fails."""
        return self.if_failed_raw or "wait"

    @property
    def chain_id(self) -> UUID:
        """The id of its chain's first job."""
        return self.root_id or self.id

    @property
    def run_at(self) -> datetime:
        """Not before this moment."""
        return read_moment(self.run_at_raw)

    @property
    def created_at(self) -> datetime:
        return read_moment(self.created_at_raw)

    @property
    def finished_at(self) -> datetime | None:
        return _read_moment(self.finished_at_raw)

    @property
    def expires_at(self) -> datetime | None:
        return _read_moment(self.expires_at_raw)

    @property
    def claimed_at(self) -> datetime | None:
        return _read_moment(self.claimed_at_raw)

    @property
    def lease_expires_at(self) -> datetime | None:
        return _read_moment(self.lease_expires_at_raw)

    @property
    def input(self) -> Any:
        """The handler's arguments by name, as plain JSON values."""
        return msgspec.json.decode(self.input_json)

    @property
    def output(self) -> Any:
        """The return value of the handler, as plain JSON values; None until the job has completed."""
        return None if self.output_json is None else msgspec.json.decode(self.output_json)

    @property
    def max_attempts(self) -> int | None:
        """None: no limit, or not known before the first claim."""
        return self.max_attempts_raw or None

    @property
    def finished(self) -> bool:
        return self.state in FINISHED

    @property
    def went_on(self) -> bool:
        """Whether its chain continued from here."""
        return self.state == COMPLETED and self.output_json is None

    def __repr__(self) -> str:
        return f"<Job {self.id} {self.type} {self.state}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Job) and self.id == other.id

    def __hash__(self) -> int:
        return hash(self.id)

    @property
    def app(self) -> Windlass:
        if self._app is None:
            raise WindlassError("this job was read without an app, so it can only be looked at")
        return self._app  # type: ignore[no-any-return]

    def refresh(self) -> Job[R_co]:
        """The job as it is now; `JobNotFound` where it is gone."""
        return self.app.require(self.id)

    async def arefresh(self) -> Job[R_co]:
        return await self.app.arequire(self.id)

    # The result of a chain is what its last job returns: `Continue[str] | str` ends in a str. A handler that returns
    # None may have completed with something else, or gone on with another task, in its transaction.

    @overload
    def result(self: Job[None], timeout: Duration | None = None) -> Any: ...
    @overload
    def result(self: Job[Continue[X]], timeout: Duration | None = None) -> X: ...
    @overload
    def result(self: Job[X | Continue[X]], timeout: Duration | None = None) -> X: ...
    def result(self, timeout: Duration | None = None) -> Any:
        """Wait until it is finished and give back what it returned."""
        return self.app.result(self, timeout)

    @overload
    async def aresult(self: Job[None], timeout: Duration | None = None) -> Any: ...
    @overload
    async def aresult(self: Job[Continue[X]], timeout: Duration | None = None) -> X: ...
    @overload
    async def aresult(self: Job[X | Continue[X]], timeout: Duration | None = None) -> X: ...
    async def aresult(self, timeout: Duration | None = None) -> Any:
        return await self.app.aresult(self, timeout)

    def cancel(self) -> Job[R_co]:
        return self.app.cancel(self.id)

    async def acancel(self) -> Job[R_co]:
        return await self.app.acancel(self.id)

    def retry(self) -> Job[R_co]:
        return self.app.retry(self.id)

    async def aretry(self) -> Job[R_co]:
        return await self.app.aretry(self.id)

    def run_now(self) -> Job[R_co]:
        return self.app.run_now(self.id)

    async def arun_now(self) -> Job[R_co]:
        return await self.app.arun_now(self.id)

    def delete(self, *, cascade: bool = False) -> None:
        self.app.delete(self.id, cascade=cascade)

    async def adelete(self, *, cascade: bool = False) -> None:
        await self.app.adelete(self.id, cascade=cascade)


def is_last_attempt(job: Job) -> bool:
    """Of one that has been claimed."""
    most = job.max_attempts_raw
    return bool(most) and job.attempt >= most  # type: ignore[operator]


def no_job(id: object) -> JobNotFound:
    """The error for an id without a job."""
    return JobNotFound(f"there is no job {id}: it never existed, was deleted, or is no longer kept")

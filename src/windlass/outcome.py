"""What an attempt can end in, and what follows: decided here, purely; written by a store.

A handler returns a value or `Continue`, or raises `Retry`, `Snooze`, `Fail`, `Cancel` or anything else. `decide`
turns that into a `Settlement`, which a store writes if the attempt still holds its lease.
"""

from __future__ import annotations

import traceback as tracebacks
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Generic, overload
from uuid import UUID

import msgspec

from .call import Call, check_blockers
from .duration import Duration, to_seconds
from .errors import InvalidInput
from .generics import R_co, X
from .job import ATTEMPTS_KEPT, ERROR_LIMIT, AttemptRecord, Job, JobError, NewJob
from .lifecycle import CANCELLED, COMPLETED, FAILED, LIVE, PENDING, State
from .policy import DEFAULT
from .redaction import hide_in_text

STAGGER_EACH, STAGGER_MOST = 0.01, 10.0  # seconds over which rescued jobs come back: for each, and for all
TYPE_LIMIT = 200  # characters of an exception's name


class Outcome(Exception):
    """Base of what a handler raises to say how its attempt ends."""


class Retry(Outcome):
    """Try again at a moment of one's own choosing; the attempt is spent."""

    def __init__(self, reason: str = "", *, after: Duration | None = None, at: datetime | None = None) -> None:
        super().__init__(reason or "the handler asked for another attempt")
        self.after, self.at = check_moment(after, at)


class Snooze(Outcome):
    """Come back later; no attempt is spent."""

    def __init__(self, reason: str = "", *, after: Duration | None = None, at: datetime | None = None) -> None:
        super().__init__(reason or "snoozed")
        self.after, self.at = check_moment(after, at)
        if self.after is None and self.at is None:
            raise InvalidInput("Snooze needs after= or at=: when should the job come back?")


class Fail(Outcome):
    """Failed at once and for good, whatever attempts are left."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason or "the handler gave up")


class Cancel(Outcome):
    """Not wanted any more: cancelled, which is not a failure."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason or "cancelled by the handler")


class Continue(Generic[R_co]):
    """Returned by a handler: this job has completed, and its chain goes on with that call.

    `Continue[str]` is one whose chain will end with a str: `async def start() -> Continue[str]`. A handler that may
    also end the chain itself returns `Continue[str] | str`.
    """

    __slots__ = ("call",)

    @overload
    def __init__(self: Continue[X], call: Call[Continue[X]]) -> None: ...
    @overload
    def __init__(self: Continue[X], call: Call[X | Continue[X]]) -> None: ...
    def __init__(self, call: Call[Any]) -> None:
        if not isinstance(call, Call):
            raise InvalidInput(f"Continue takes a call, as task.call(…) makes it, not {type(call).__name__}")
        self.call = call

    def __repr__(self) -> str:
        return f"Continue({self.call.type})"


def next_of_chain(job: Job, call: Call, make_id: Callable[[], UUID], max_blockers: int) -> NewJob:
    """The job that this one's chain goes on with."""
    following = call.new_job(make_id)
    check_blockers([following], max_blockers)
    if job.chain_id in following.blockers:
        raise InvalidInput(f"{following.type} is to wait for the chain that it belongs to")
    following.chain_id, following.chain_index = job.chain_id, job.chain_index + 1
    following.tenant = following.tenant or job.tenant
    following.chain_trace = job.chain_trace
    return following


class Settlement(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How an attempt ends, ready to be written; fields are named as the columns are.

    `token` None stands for "claimed by nobody" and settles a job that waits. `state` pending sends the job back:
    at `run_at`, or after `delay_seconds`, or (neither given) when it was due before. `continues` is the next job of
    the chain, created with the completion; then there is no `output`, not even null: so a job that has gone on is told
    from one that its chain ended with, though the next be no longer kept.
    """

    id: UUID
    token: UUID | None
    state: State
    output: str | None = None
    error: str | None = None
    attempts: str | None = None
    delay_seconds: float | None = None
    run_at: datetime | None = None
    refund: int = 0
    progress: str | None = None
    continues: NewJob | None = None


class Interruption(Exception):
    """Base of errors that befell an attempt from outside. They say nothing of its work."""


class Described(Exception):
    """An error that is known only by its description: it happened in another process, where it was seen whether the
    task wants another attempt after it."""

    def __init__(self, error: JobError, *, retryable: bool = True) -> None:
        super().__init__(str(error))
        self.error, self.retryable = error, retryable


def check_moment(after: Duration | None, at: datetime | None) -> tuple[float | None, datetime | None]:
    if after is not None and at is not None:
        raise InvalidInput("give after= or at=, not both")
    if at is not None and (not isinstance(at, datetime) or at.tzinfo is None):
        raise InvalidInput("at= is a datetime with a timezone")
    if at is not None:
        try:
            at.astimezone(UTC)
        except OverflowError:
            raise InvalidInput("at= is a moment of the years 1 to 9999, in UTC") from None
    return (None if after is None else to_seconds(after)), at


def describe_error(error: BaseException | str) -> JobError:
    """An error as it is stored: never too long, never unstorable, whatever the exception's own methods do."""
    if isinstance(error, str):
        return JobError("Error", make_safe(error))
    if isinstance(error, Described):
        return error.error
    try:
        message = str(error)
    except BaseException:
        message = f"<{type(error).__name__} whose message cannot be shown>"
    try:
        trace = "".join(tracebacks.format_exception(error, limit=50))
    except BaseException:
        trace = ""
    return JobError(type(error).__name__[:TYPE_LIMIT], make_safe(message), make_safe(trace, from_end=True) or None)


def without_secrets(job: Job, error: JobError) -> JobError:
    """The error, without the values of arguments that are not to be shown."""
    names = job.policy.redact if job.policy else ()
    if not names:
        return error
    input, trace = job.input, error.traceback
    return JobError(
        error.type,
        hide_in_text(error.message, input, names),
        None if trace is None else hide_in_text(trace, input, names),
    )


def make_safe(text: str, *, from_end: bool = False) -> str:
    """Cut to what is kept; what no store can hold is replaced, visibly."""
    cut = text[-ERROR_LIMIT:] if from_end else text[:ERROR_LIMIT]
    return cut.replace("\0", "\\x00").encode("utf-8", "backslashreplace").decode("utf-8")


def encode_error(error: JobError) -> str:
    return msgspec.json.encode(error).decode()


def decide(
    job: Job,
    token: UUID,
    result: object,
    *,
    random: Callable[[], float],
    ended_at: datetime | None = None,
    retryable: bool = True,
) -> Settlement:
    """What follows from how an attempt ended: an exception, or the JSON text of what the handler returned. After an
    exception that is not `retryable` no attempt follows."""
    match result:
        case BaseException() as error:
            return _decide_error(job, token, error, random, ended_at, retryable)
        case str() as output:
            return Settlement(id=job.id, token=token, state=COMPLETED, output=output)
    raise TypeError(f"an attempt ends in an exception or in JSON text, not in {type(result).__name__}")


def _decide_error(
    job: Job,
    token: UUID,
    error: BaseException,
    random: Callable[[], float],
    ended_at: datetime | None,
    retryable: bool,
) -> Settlement:
    described = without_secrets(job, describe_error(error))
    story = _with_attempt(job, described, ended_at)

    def settled(state: State, **more: Any) -> Settlement:
        return Settlement(id=job.id, token=token, state=state, error=encode_error(described), attempts=story, **more)

    policy = job.policy or DEFAULT
    match error:
        case Cancel():
            return settled(CANCELLED)
        case Snooze():
            return Settlement(
                id=job.id, token=token, state=PENDING, delay_seconds=error.after, run_at=error.at, refund=1
            )
        case Fail():
            return settled(FAILED)
        case _ if policy.is_last(job.attempt) or not retryable:
            return settled(FAILED)
        case Retry(after=after, at=at) if after is not None or at is not None:
            return settled(PENDING, delay_seconds=after, run_at=at)
    delay = policy.backoff.delay(max(1, job.attempt), random)
    return settled(PENDING, delay_seconds=delay.total_seconds())


def give_back(job: Job, token: UUID) -> Settlement:
    """Not started: the attempt that the claim counted is given back with the job."""
    return Settlement(id=job.id, token=token, state=PENDING, refund=1)


def was_accepted(settlement: Settlement, *, state: State, token: UUID | None, previous_token: UUID | None) -> bool:
    """Whether a job that is found like this shows that this very settlement was written, and only its answer lost."""
    if settlement.token is None:
        return False  # nobody could tell whose it was
    if state in LIVE:
        return settlement.state == PENDING and previous_token == settlement.token
    # What was to be sent back is cancelled where someone has asked for that.
    return token == settlement.token and (settlement.state, state) in ((state, state), (PENDING, CANCELLED))


class LeaseExpired(Interruption):
    """The worker that held the job was not heard of until its lease ran out."""


def stagger_seconds(count: int) -> float:
    """Over how long so many rescued jobs come back: what falls on one server together must not come back together."""
    return min(STAGGER_EACH * count, STAGGER_MOST)


def decide_rescue(
    job: Job, token: UUID, *, random: Callable[[], float], stagger_seconds: float, begun: bool = True
) -> Settlement:
    """What becomes of a job whose worker is gone: as after any failure, but not all at the same moment. One whose
    handler was never called has not failed: it comes back as it was."""
    if job.cancel_requested:
        error: BaseException = Cancel("cancelled while it ran; its worker was not heard of again")
    elif not begun:
        return msgspec.structs.replace(give_back(job, token), delay_seconds=random() * stagger_seconds)
    else:
        error = LeaseExpired(f"worker {job.worker or 'unknown'} was not heard of until the lease ran out")
    error.__traceback__ = None
    settlement = decide(job, token, error, random=random, ended_at=job.lease_expires_at)
    if settlement.state != PENDING:
        return settlement
    delay = (settlement.delay_seconds or 0.0) + random() * stagger_seconds
    return msgspec.structs.replace(settlement, delay_seconds=delay)


def decide_any_rescue(
    id: UUID,
    token: UUID,
    read: Callable[[], Job],
    *,
    random: Callable[[], float],
    stagger_seconds: float,
    begun: bool = True,
) -> Settlement:
    """`decide_rescue` for a row of which nobody knows what is in it: one that cannot be read has failed, so that it
    does not keep the others from being rescued."""
    try:
        return decide_rescue(read(), token, random=random, stagger_seconds=stagger_seconds, begun=begun)
    except Exception as error:
        described = describe_error(error)
        unreadable = JobError("Unreadable", f"its worker is gone, and its row makes no sense: {described}")
        return Settlement(id=id, token=token, state=FAILED, error=encode_error(unreadable))


class Expired(Exception):
    """The time by which the job had to be started went by."""


def decide_expiry(id: UUID, expires_at: datetime | None) -> Settlement:
    """A job that nobody has started in time ends as one that nobody wants any more. None: its row does not say when
    that was in terms of a calendar."""
    moment = "an unknown time" if expires_at is None else expires_at.astimezone(UTC).isoformat(" ", "milliseconds")
    error = JobError(Expired.__name__, f"it expired at {moment}: it was to be started by then")
    return Settlement(id=id, token=None, state=CANCELLED, error=encode_error(error))


class BlockerFailed(Exception):
    """A chain that the job waited for failed, or was cancelled, and `if_failed="cancel"` was given."""


def decide_blocked(id: UUID, blocker: UUID, type: str, state: State) -> Settlement:
    """A job that is cancelled since it waited for this one, which has ended so."""
    ended = "was cancelled" if state == CANCELLED else f"has {state}"
    error = JobError(BlockerFailed.__name__, f"job {blocker} ({type}), which it waited for, {ended}")
    return Settlement(id=id, token=None, state=CANCELLED, error=encode_error(error))


def _with_attempt(job: Job, error: JobError, ended_at: datetime | None) -> str:
    """The story of the job's attempts with this one added: the last ten, the running one included."""
    brief = JobError(error.type, error.message[:1000])
    this = AttemptRecord(
        number=job.attempt, started_at=job.claimed_at, ended_at=ended_at, worker=job.worker, error=brief
    )
    return msgspec.json.encode([*job.attempts, this][-ATTEMPTS_KEPT:]).decode()


def ended_after(job: Job, ran_for: timedelta) -> datetime | None:
    """When an attempt ended by the store's clock: its start there, and how long it took by ours."""
    return None if job.claimed_at is None else job.claimed_at + ran_for

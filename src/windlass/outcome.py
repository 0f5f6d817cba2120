"""The outcomes of an attempt, and the decision about the job's next state. This module does no I/O.

A handler returns a value or `Continue`, or raises `Retry`, `Snooze`, `Fail`, `Cancel` or any other exception. `decide`
turns that into a `Settlement`. A store writes the settlement if the attempt still holds its lease.
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

STAGGER_EACH, STAGGER_MOST = 0.01, 10.0  # seconds over which rescued jobs are spread: for each job, and at most
TYPE_LIMIT = 200  # characters of an exception's name


class Outcome(Exception):
    """The base of the exceptions by which a handler chooses how its attempt ends."""


class Retry(Outcome):
    """Try again at a time that the handler chooses. The attempt counts."""

    def __init__(self, reason: str = "", *, after: Duration | None = None, at: datetime | None = None) -> None:
        super().__init__(reason or "the handler asked for another attempt")
        self.after, self.at = check_moment(after, at)


class Snooze(Outcome):
    """Run the job again later. The attempt does not count."""

    def __init__(self, reason: str = "", *, after: Duration | None = None, at: datetime | None = None) -> None:
        super().__init__(reason or "snoozed")
        self.after, self.at = check_moment(after, at)
        if self.after is None and self.at is None:
            raise InvalidInput("Snooze has neither after= nor at=; give the time at which the job runs again")


class Fail(Outcome):
    """Fail the job now, even if attempts are left."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason or "the handler gave up")


class Cancel(Outcome):
    """Cancel the job, because its work is no longer needed. This is not a failure."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason or "cancelled by the handler")


class Continue(Generic[R_co]):
    """A handler returns it to complete its job and to continue the chain with this call.

    With `Continue[str]` the chain will end with a str: `async def start() -> Continue[str]`. A handler that may also
    end the chain itself returns `Continue[str] | str`.
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
    """Make the next job of this job's chain."""
    following = call.new_job(make_id)
    check_blockers([following], max_blockers)
    if job.chain_id in following.blockers:
        raise InvalidInput(f"{following.type} would wait for its own chain, for ever; leave that chain out of after=")
    following.chain_id, following.chain_index = job.chain_id, job.chain_index + 1
    following.tenant = following.tenant or job.tenant
    following.chain_trace = job.chain_trace
    return following


class Settlement(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How an attempt ends, ready for the store to write. The fields have the names of the columns.

    A `token` of None settles a job that waits and that no worker has claimed. The `state` pending makes the job wait
    again: until `run_at`, or for `delay_seconds`, or (neither given) with the due time that it had before.

    `continues` is the next job of the chain, created with the completion. Then `output` is None, not the JSON null. So
    a job that was continued differs from the last job of a chain, even when the next job is no longer kept.
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
    """The base of errors that end an attempt from outside. They do not mean that its handler failed."""


class Described(Exception):
    """An error of another process, known here only by its description. That process decided whether it is
    `retryable`."""

    def __init__(self, error: JobError, *, retryable: bool = True) -> None:
        super().__init__(str(error))
        self.error, self.retryable = error, retryable


def check_moment(after: Duration | None, at: datetime | None) -> tuple[float | None, datetime | None]:
    if after is not None and at is not None:
        raise InvalidInput("after= and at= are given; give one, not both")
    if at is not None and (not isinstance(at, datetime) or at.tzinfo is None):
        raise InvalidInput(f"at= is a datetime with a timezone, not {at!r:.60}")
    if at is not None:
        try:
            at.astimezone(UTC)
        except OverflowError:
            raise InvalidInput(f"at= must lie between the years 1 and 9999 in UTC, not at {at.isoformat()}") from None
    return (None if after is None else to_seconds(after)), at


def describe_error(error: BaseException | str) -> JobError:
    """Describe an error as every store can keep it: cut to a limit, even if the exception's own methods fail."""
    if isinstance(error, str):
        return JobError("Error", make_safe(error))
    if isinstance(error, Described):
        return error.error
    name = name_of(error)
    try:
        message = str(error)
    except BaseException:
        message = f"<{name} whose message cannot be shown>"
    try:
        trace = "".join(tracebacks.format_exception(error, limit=50))
    except BaseException:
        trace = ""
    return JobError(name, make_safe(message), make_safe(trace, from_end=True) or None)


def name_of(error: BaseException) -> str:
    """The name of its class, even if the class's own class does not want to tell it."""
    try:
        return str(type(error).__name__)[:TYPE_LIMIT]
    except BaseException:
        return "Exception"


def without_secrets(job: Job, error: JobError) -> JobError:
    """Return the error without the values of the task's redacted arguments."""
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
    """Cut the text to the limit, and escape the characters that no store can hold."""
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
    """Decide how an attempt is settled. `result` is an exception, or the handler's result as JSON text.

    After an exception that is not `retryable` the job fails.
    """
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
    after, at = None, None
    if isinstance(error, Retry | Snooze):
        try:  # a subclass may have set them to anything, or not at all
            after, at = check_moment(getattr(error, "after", None), getattr(error, "at", None))
            if isinstance(error, Snooze) and after is None and at is None:
                raise InvalidInput("it says neither after nor at")
        except Exception as wrong:
            error = InvalidInput(f"{name_of(error)}: {describe_error(wrong).message}")
    described = without_secrets(job, describe_error(error))
    attempts = _with_attempt(job, described, ended_at)

    def settled(state: State, **more: Any) -> Settlement:
        return Settlement(id=job.id, token=token, state=state, error=encode_error(described), attempts=attempts, **more)

    policy = job.policy or DEFAULT
    match error:
        case Cancel():
            return settled(CANCELLED)
        case Snooze():
            return Settlement(id=job.id, token=token, state=PENDING, delay_seconds=after, run_at=at, refund=1)
        case Fail():
            return settled(FAILED)
        case _ if policy.is_last(job.attempt) or not retryable:
            return settled(FAILED)
        case Retry() if after is not None or at is not None:
            return settled(PENDING, delay_seconds=after, run_at=at)
    delay = policy.backoff.delay(max(1, job.attempt), random)
    return settled(PENDING, delay_seconds=delay.total_seconds())


def give_back(job: Job, token: UUID) -> Settlement:
    """Return a claimed job that was not started. The attempt that the claim counted does not count."""
    return Settlement(id=job.id, token=token, state=PENDING, refund=1)


def is_due_again(settlement: Settlement) -> bool:
    """Whether the job was given back, and any worker may start it at once."""
    is_later = settlement.delay_seconds or settlement.run_at is not None
    return settlement.state == PENDING and settlement.refund > 0 and not is_later


def was_accepted(settlement: Settlement, *, state: State, token: UUID | None, previous_token: UUID | None) -> bool:
    """Whether a job in this state shows that this settlement was written, and that only the answer was lost."""
    if settlement.token is None:
        return False  # without a token the row does not show which settlement was written
    if state in LIVE:
        return settlement.state == PENDING and previous_token == settlement.token
    # A job that should have become pending is cancelled instead if a cancellation was requested.
    return token == settlement.token and (settlement.state, state) in ((state, state), (PENDING, CANCELLED))


class LeaseExpired(Interruption):
    """The worker that held the job did not renew its lease in time."""


def stagger_seconds(count: int) -> float:
    """Over how many seconds to spread so many rescued jobs, so that they do not all start at the same moment."""
    return min(STAGGER_EACH * count, STAGGER_MOST)


def decide_rescue(
    job: Job, token: UUID, *, random: Callable[[], float], stagger_seconds: float, begun: bool = True
) -> Settlement:
    """Decide what happens to a job whose worker is dead: the same as after a failure, plus a random delay.

    A job whose handler was not called has not failed. It becomes pending and the attempt does not count.
    """
    if job.cancel_requested:
        error: BaseException = Cancel("cancelled while it ran; its worker did not renew the lease")
    elif not begun:
        return msgspec.structs.replace(give_back(job, token), delay_seconds=random() * stagger_seconds)
    else:
        error = LeaseExpired(f"worker {job.worker or 'unknown'} did not renew the lease before it expired")
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
    """`decide_rescue` for a row that may be unreadable. Such a job fails, so that it does not stop the rescue of the
    others."""
    try:
        return decide_rescue(read(), token, random=random, stagger_seconds=stagger_seconds, begun=begun)
    except Exception as error:
        described = describe_error(error)
        unreadable = JobError("Unreadable", f"its worker is dead, and its row cannot be read: {described}")
        return Settlement(id=id, token=token, state=FAILED, error=encode_error(unreadable))


class Expired(Exception):
    """The job was not started before its `expires` time."""


def decide_expiry(id: UUID, expires_at: datetime | None) -> Settlement:
    """Cancel a job that no worker started in time. `expires_at` is None if the row's value is no valid date."""
    moment = "an unknown time" if expires_at is None else expires_at.astimezone(UTC).isoformat(" ", "milliseconds")
    error = JobError(Expired.__name__, f"it expired at {moment}: no worker had started it by then")
    return Settlement(id=id, token=None, state=CANCELLED, error=encode_error(error))


class BlockerFailed(Exception):
    """A chain that the job waited for failed or was cancelled, and the job has `if_failed="cancel"`."""


def decide_blocked(id: UUID, blocker: UUID, type: str, state: State) -> Settlement:
    """Cancel a job because its blocker ended in this state."""
    ended = "was cancelled" if state == CANCELLED else f"has {state}"
    error = JobError(BlockerFailed.__name__, f"job {blocker} ({type}), which it waited for, {ended}")
    return Settlement(id=id, token=None, state=CANCELLED, error=encode_error(error))


def _with_attempt(job: Job, error: JobError, ended_at: datetime | None) -> str:
    """The records of the job's last attempts, this one included, as JSON."""
    brief = JobError(error.type, error.message[:1000])
    this = AttemptRecord(
        number=job.attempt, started_at=job.claimed_at, ended_at=ended_at, worker=job.worker, error=brief
    )
    return msgspec.json.encode([*job.attempts, this][-ATTEMPTS_KEPT:]).decode()


def ended_after(job: Job, ran_for: timedelta) -> datetime | None:
    """The end of an attempt by the store's clock: its start by that clock, plus the time that this process
    measured."""
    return None if job.claimed_at is None else job.claimed_at + ran_for

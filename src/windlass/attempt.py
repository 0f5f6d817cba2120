"""An attempt: one run of a job by its claimer, until the lease ends or the outcome is settled."""

from __future__ import annotations

import asyncio
import random
import time
from contextvars import ContextVar
from datetime import UTC, datetime
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

import msgspec

from .block import Block, settle_or_raise
from .duration import Duration
from .errors import Conflict, LeaseLost, WindlassError
from .job import Job, LogLine, Notes
from .lifecycle import COMPLETED
from .operation import Flow, Operation, Sleep, check_connection, flow_twins, transact, twins
from .outcome import Continue, Fail, Retry, Settlement, check_moment, decide, give_back, make_safe, next_of_chain
from .policy import DEFAULT, UNSET
from .stores.store import Blocker, Lease, Note

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from concurrent.futures import Future

    from .app import Windlass
    from .worker.deadline import Deadline
    from .worker.ledger import Place

T = TypeVar("T")

LOG_LINES = 100  # of an attempt that are kept
LINE_LIMIT = 1000
RENEW_SECONDS, RENEW_PAUSE = 5.0, 0.05  # how long a renewal tries a locked row, and the pause between tries


class Stop(Enum):
    """Why a handler is interrupted."""

    SHUTDOWN = "the worker ends"
    TIMEOUT = "it took too long"
    CANCEL = "someone cancelled the job"
    LEASE_LOST = "another has the job"


class Attempt(msgspec.Struct, eq=False):
    """A claimed job. The pull interface settles it with `complete`, `fail`, `retry` or `release`."""

    app: Windlass
    job: Job
    token: UUID
    settled: bool = False
    ended: bool = False  # its handler has ended, and the worker settles it
    stop: Stop | None = None
    why: str | None = None
    task: asyncio.Task[Any] | None = None
    interrupter: Callable[[], None] | None = None
    begin: Callable[[], Awaitable[None]] | None = None  # the worker awaits it before it calls the handler
    entering: Callable[[bool], None] | None = None  # called as its handler is; True: in a thread
    deadline: Deadline | None = None  # while its handler runs, if its task has a timeout
    noted: bool = False  # there is progress, or a log line, that is not written yet
    waited_for: Sequence[Blocker] = ()
    block: Block | None = None
    renewal: Future[None] | None = None  # the renewal of its lease that is under way
    ran_seconds: float | None = None  # how long the worker ran it, once it has ended
    place: Place | None = None  # in the ledger of the worker that runs it
    next_place: Place | None = None  # for the next job of its chain
    # Settled in the caller's transaction, which may still be rolled back. If `settled` is True, it was committed.
    unconfirmed_settlement: Settlement | None = None
    _cancel_requested: bool | None = None  # as the last renewal has said
    notes: Notes | None = None  # progress and log of this attempt
    _renewed_until: datetime | None = None

    @property
    def cancel_requested(self) -> bool:
        return self.job.cancel_requested if self._cancel_requested is None else self._cancel_requested

    @cancel_requested.setter
    def cancel_requested(self, is_requested: bool) -> None:
        self._cancel_requested = is_requested

    @property
    def lease_expires_at(self) -> datetime | None:
        return self._renewed_until or self.job.lease_expires_at

    @property
    def number(self) -> int:
        """Counts from 1."""
        return self.job.attempt

    @property
    def tenant(self) -> str:
        return self.job.tenant

    @property
    def blockers(self) -> list[Any]:
        """The outputs of the chains that it waited for, as plain JSON values, in the order of `after=`."""
        return [None if one.output is None else msgspec.json.decode(one.output) for one in self.waited_for]

    def set_blockers(self, blockers: Sequence[Blocker]) -> None:
        """The chains that the job waited for, with their outputs."""
        self.waited_for = blockers

    @property
    def lease(self) -> Lease:
        """As long as the one that it was claimed with, which the claimer may have chosen."""
        job = self.job
        if job.lease_expires_at is None or job.claimed_at is None:
            return Lease(job.id, self.token, (job.policy or DEFAULT).lease_seconds)
        return Lease(job.id, self.token, (job.lease_expires_at - job.claimed_at).total_seconds())

    def __repr__(self) -> str:
        return f"<Attempt {self.number} of {self.job!r}>"

    # Progress and log: buffered. The worker writes them about once a second, and with the outcome

    def progress(self, fraction: float, text: str = "") -> None:
        """How far it is, from 0 to 1."""
        self._note().fraction = min(1.0, max(0.0, float(fraction)))
        self._note().text = make_safe(text)[:LINE_LIMIT]
        self.noted = True

    def log(self, text: str) -> None:
        """Write a line into the log of the job; the last hundred are kept."""
        notes = self._note()
        notes.log.append(LogLine(datetime.now(UTC), make_safe(str(text))[:LINE_LIMIT]))
        del notes.log[:-LOG_LINES]
        self.noted = True

    def _note(self) -> Notes:
        if self.notes is None:
            self.notes = msgspec.structs.replace(self.job.notes, log=list(self.job.notes.log))
        return self.notes

    def _written_notes(self) -> str | None:
        return None if self.notes is None else msgspec.json.encode(self.notes).decode()

    def renewed(self, until: datetime) -> None:
        self._renewed_until = until

    def renewing(self) -> Lease:
        return self.lease if self.notes is None else msgspec.structs.replace(self.lease, progress=self._written_notes())

    def note_to_write(self) -> Note | None:
        """Progress and log that are to be written now."""
        self.noted = False
        written = self._written_notes()
        return None if written is None else Note(self.job.id, self.token, written)

    def with_notes(self, settlement: Settlement) -> Settlement:
        if self.notes is None:
            return settlement
        return msgspec.structs.replace(settlement, progress=self._written_notes())

    # A worker may interrupt it

    @property
    def interrupted(self) -> bool:
        return self.stop is not None

    def interrupt(self, stop: Stop, why: str | None = None) -> None:
        """In the worker's loop. The first reason counts."""
        if self.stop is not None:
            return
        self.stop, self.why = stop, why
        if self.interrupter is not None:
            self.interrupter()
        elif self.task is not None:
            self.task.cancel()

    def completion(self, value: Any) -> Settlement:
        """Completed: with this output, or with the next job of the chain."""
        if isinstance(value, Continue):
            following = next_of_chain(self.job, value.call, self.app.make_id, self.app.max_blockers)
            return Settlement(id=self.job.id, token=self.token, state=COMPLETED, continues=following)
        output = self.app.encode_output(self.job, value)
        return Settlement(id=self.job.id, token=self.token, state=COMPLETED, output=output)

    def done(self) -> Settlement:
        """Completed without an output."""
        return Settlement(id=self.job.id, token=self.token, state=COMPLETED, output="null")

    def transaction(self) -> Block:
        """`async with attempt.transaction() as connection:` (`with` in a sync handler): your writes on it and the
        completion of the job commit together, or neither does. `complete` in the block gives the output."""
        return Block(self)

    def _complete(self, output: Any = None, *, connection: Any = UNSET) -> Flow[None]:
        """Complete the job: store its output, or, with `Continue`, create the next job of its chain in the same
        transaction.

        In a block of `transaction()` it is recorded, and written when the block ends. With `connection` it is written
        in your transaction: roll back if it raises `LeaseLost`."""
        connection = check_connection(connection)
        if self.block is not None and connection is None:
            self.block.record(output)
            return
        settlement = self.with_notes(self.completion(output))
        if connection is None:
            yield from transact(lambda: self._settle(settlement))
        else:
            yield from transact(lambda: self.settling(settlement), connection)
            self.unconfirmed_settlement = settlement

    complete, acomplete = flow_twins(_complete)

    def settling(self, settlement: Settlement) -> Operation[None]:
        """In the caller's transaction: it counts if that commits."""
        if self.settled or self.ended:
            raise Conflict(f"job {self.job.id}: this attempt has been settled already")
        yield from settle_or_raise(self, settlement)

    def _fail(self, error: BaseException | str) -> Operation[None]:
        """Failed for good, whatever attempts are left."""
        reason = error if isinstance(error, BaseException) else Fail(error)
        settlement = decide(self.job, self.token, reason, random=random.random)
        yield from self._settle(_for_good(settlement))

    fail, afail = twins(_fail)

    def _retry(
        self, error: BaseException | str = "", *, after: Duration | None = None, at: datetime | None = None
    ) -> Operation[None]:
        """Try again: at that moment, else by the job's backoff; failed where this was the last attempt."""
        if isinstance(error, str):
            outcome: BaseException = Retry(error, after=after, at=at)
            settlement = decide(self.job, self.token, outcome, random=random.random)
        else:
            settlement = decide(self.job, self.token, error, random=random.random)
            seconds, moment = check_moment(after, at)
            if settlement.state == "pending" and (seconds is not None or moment is not None):
                settlement = _at(settlement, seconds, moment)
        yield from self._settle(settlement)

    retry, aretry = twins(_retry)

    def _release(self) -> Operation[None]:
        """Give the job back as it was; no attempt is spent."""
        yield from self._settle(give_back(self.job, self.token))

    release, arelease = twins(_release)

    def _renew(self) -> Operation[datetime]:
        """Renew the lease from now on: when it ends."""
        self._refuse_in_block("a lease is renewed by the worker, or before the block")
        deadline = time.monotonic() + RENEW_SECONDS
        while True:
            (renewal,) = yield from self.app.store.renew([self.renewing()])
            if not renewal.locked:
                break
            if time.monotonic() > deadline:
                raise Conflict(
                    f"job {self.job.id}: another transaction holds its row, so its lease still ends at "
                    f"{renewal.expires_at}: call renew() again"
                )
            yield Sleep(RENEW_PAUSE)  # another transaction has its row: most locks are short
        if renewal.expires_at is None:
            raise LeaseLost(f"job {self.job.id}: {renewal.reason}", self.job.id, self.token)
        self.renewed(renewal.expires_at)
        self.cancel_requested = renewal.cancel_requested
        return renewal.expires_at

    renew, arenew = twins(_renew)

    def _settle(self, settlement: Settlement) -> Operation[None]:
        if self.settled or self.ended:
            raise Conflict(f"job {self.job.id}: this attempt has been settled already")
        self._refuse_in_block("complete() says how it ends; to end otherwise, raise Fail, Retry or Snooze")
        settlement = self.with_notes(settlement)
        yield from settle_or_raise(self, settlement)
        self.settled, self.unconfirmed_settlement = True, settlement

    def _refuse_in_block(self, instead: str) -> None:
        """On another connection it would collide with the block, or each would wait for the other."""
        if self.block is not None:
            raise Conflict(f"job {self.job.id}: not inside attempt.transaction(): {instead}")

    def run_operation(self, make: Callable[[], Operation[T]], connection: Any = None) -> T:
        return self.app.run_operation(make, connection)

    async def arun_operation(self, make: Callable[[], Operation[T]], connection: Any = None) -> T:
        return await self.app.arun_operation(make, connection)


def _for_good(settlement: Settlement) -> Settlement:
    return msgspec.structs.replace(settlement, state="failed", delay_seconds=None, run_at=None, refund=0)


def _at(settlement: Settlement, seconds: float | None, moment: datetime | None) -> Settlement:
    return msgspec.structs.replace(settlement, delay_seconds=seconds, run_at=moment)


current: ContextVar[Attempt | None] = ContextVar("windlass_attempt", default=None)


def current_attempt() -> Attempt:
    """The attempt that this code runs in."""
    attempt = current.get()
    if attempt is None:
        raise WindlassError("current_attempt() is for code that runs in a job's handler")
    return attempt

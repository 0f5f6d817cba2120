"""`attempt.transaction()`: what the handler writes and the completion of its job commit together, or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent import futures
from contextvars import ContextVar, Token
from types import TracebackType
from typing import TYPE_CHECKING, Any

from .errors import Conflict, LeaseLost, StoreUnavailable, WindlassError
from .lifecycle import COMPLETED
from .operation import Operation
from .outcome import Settlement
from .stores.wakeup import Hint

if TYPE_CHECKING:
    from .attempt import Attempt

NOTHING = object()
RENEWAL_SECONDS = 1.0  # that a block waits for a renewal that is under way


class BlockConflict(WindlassError):
    """The database asked for another try of the block: the handler is called again, and no attempt is spent.
    `in_settlement`: our settlement or the commit met the conflict, and no statement of the handler before."""

    def __init__(self, message: str, *, in_settlement: bool = False) -> None:
        super().__init__(message)
        self.in_settlement = in_settlement


class BlockRefused(StoreUnavailable):
    """The database did not begin, settle or commit the block, for a reason that is not in the data: the job is given
    back, and no attempt is spent. Where the commit got no answer it may have been made: then the job is completed, and
    the store takes no settlement of this attempt any more."""


class Block:
    """With `with` in a sync handler, with `async with` in an async one; gives a connection in a transaction.

    Leaving it settles the job on that connection and commits. Where the lease was lost meanwhile it is rolled back, and
    `LeaseLost` is raised.
    """

    def __init__(self, attempt: Attempt) -> None:
        self.attempt, self.app = attempt, attempt.app
        self.connections = attempt.app.store.connections
        self.connection: Any = None
        self.after_commit: list[Callable[[], None]] = []
        self._value: Any = NOTHING
        self._manager: Any = None
        self._joined: Token[Block | None] | None = None

    def record(self, value: Any) -> None:
        """How the attempt ends; written when the block ends."""
        if self._value is not NOTHING:
            raise Conflict(f"job {self.attempt.job.id}: this block has been given an outcome already")
        self.attempt.completion(value)  # refuses what cannot be stored, while something can be done about it
        self._value = value

    def _settlement(self) -> Settlement:
        ended = self.attempt.done() if self._value is NOTHING else self.attempt.completion(self._value)
        return self.attempt.with_notes(ended)

    def _open(self) -> None:
        """From here on renewals wait; the block then waits for the one that is under way: in MongoDB a transaction and
        a renewal that was written after it began would collide, and the handler would have to begin again."""
        if self.attempt.settled or self.attempt.ended or self.attempt.block is not None:
            raise Conflict(f"job {self.attempt.job.id}: one attempt ends in one block")
        self._joined = joined.set(self)
        self.attempt.block = self

    def _close(self) -> None:
        self.attempt.block = None
        if self._joined is not None:
            joined.reset(self._joined)

    @property
    def is_open(self) -> bool:
        """A task that was begun in it may go on after its end."""
        return self.attempt.block is self

    def _settled(self, settlement: Settlement | None) -> None:
        self.attempt.settled, self.attempt.recorded = True, settlement
        for tell in self.after_commit:
            tell()

    def _again(self, error: BaseException, *, in_settlement: bool = False) -> BlockConflict | None:
        if not self.connections.is_transient(error):
            return None
        message = f"job {self.attempt.job.id}: the database asked for another try: {error}"
        return BlockConflict(message, in_settlement=in_settlement)

    def _refused(self, error: BaseException, *, committing: bool = False) -> WindlassError | None:
        """What to raise where a statement of ours has failed; None where the error is about the data."""
        if (conflict := self._again(error, in_settlement=not self.connections.was_undone(error))) is not None:
            return conflict
        if self.connections.is_unwilling(error, committing=committing):
            return BlockRefused(str(error).strip())
        return None

    # Sync

    def __enter__(self) -> Any:
        self._open()
        try:
            if (renewal := self.attempt.renewal) is not None and not renewal.done():
                futures.wait([renewal], RENEWAL_SECONDS)
            self._manager = self.connections.transaction()
            self.connection = self._manager.__enter__()
            if tenant := self.attempt.job.tenant:
                self._name(tenant)
        except BaseException as error:
            self._close()
            if (refused := self._refused(error)) is not None:
                raise refused from error
            raise
        return self.connection

    def _name(self, tenant: str) -> None:
        try:
            self.connections.run_on(self.connection, lambda: self.app.store.name_tenant(tenant))
        except BaseException as error:
            self._manager.__exit__(type(error), error, error.__traceback__)
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._end(kind, error, trace)
        finally:
            self._close()  # not before: until it has committed, a renewal would collide with it

    def _end(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        settlement, committing = None, False
        try:
            if error is None:
                try:
                    settlement = self._settlement()
                    self.connections.run_on(self.connection, lambda: self.attempt.settling(settlement))
                except BaseException as refusal:
                    self._manager.__exit__(type(refusal), refusal, refusal.__traceback__)
                    raise
                committing = True
            self._manager.__exit__(kind, error, trace)
        except BaseException as refusal:
            told = self._refused(refusal, committing=committing) if error is None else self._again(refusal)
            if told is not None:
                raise told from refusal
            raise
        if error is None:
            self._settled(settlement)
        elif (conflict := self._again(error)) is not None:
            raise conflict from error

    # Async

    async def __aenter__(self) -> Any:
        self._open()
        try:
            if (renewal := self.attempt.renewal) is not None and not renewal.done():
                await asyncio.wait([asyncio.wrap_future(renewal)], timeout=RENEWAL_SECONDS)
            self._manager = self.connections.atransaction()
            self.connection = await self._manager.__aenter__()
            if tenant := self.attempt.job.tenant:
                await self._aname(tenant)
        except BaseException as error:
            self._close()
            if (refused := self._refused(error)) is not None:
                raise refused from error
            raise
        return self.connection

    async def _aname(self, tenant: str) -> None:
        try:
            await self.connections.arun_on(self.connection, lambda: self.app.store.name_tenant(tenant))
        except BaseException as error:
            await self._manager.__aexit__(type(error), error, error.__traceback__)
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._aend(kind, error, trace)
        finally:
            self._close()

    async def _aend(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        settlement, committing = None, False
        try:
            if error is None:
                try:
                    settlement = self._settlement()
                    await self.connections.arun_on(self.connection, lambda: self.attempt.settling(settlement))
                except BaseException as refusal:
                    await self._manager.__aexit__(type(refusal), refusal, refusal.__traceback__)
                    raise
                committing = True
            await self._manager.__aexit__(kind, error, trace)
        except BaseException as refusal:
            told = self._refused(refusal, committing=committing) if error is None else self._again(refusal)
            if told is not None:
                raise told from refusal
            raise
        if error is None:
            self._settled(settlement)
        elif (conflict := self._again(error)) is not None:
            raise conflict from error


# The block that this code runs in: what it enqueues joins the block's transaction.
joined: ContextVar[Block | None] = ContextVar("windlass_block", default=None)


def settle_or_raise(attempt: Attempt, settlement: Settlement) -> Operation[None]:
    app, following = attempt.app, settlement.continues
    refusals = yield from app.store.settle([settlement])
    if refusals:
        raise LeaseLost(f"job {attempt.job.id}: {refusals[0].reason}")
    if attempt.recorded is not None:
        yield from _refuse_second(attempt, settlement)
    if following is not None:  # the worker that serves it may be another
        yield from app.store.hint([Hint("ready", following.queue)])


def _refuse_second(attempt: Attempt, settlement: Settlement) -> Operation[None]:
    """The attempt has been completed before, in a transaction of the caller's own. If that one was rolled back, this is
    what counts; if not, the store takes this for the same, sent again, and nothing of it was written."""
    if settlement.state != COMPLETED:
        return  # this the store tells apart
    following = settlement.continues
    found = yield from attempt.app.store.get([attempt.job.id if following is None else following.id])
    if following is None and not found:
        return  # what is not kept cannot be compared
    if not found or (following is None and found[0].output_json != settlement.output):
        raise Conflict(f"job {attempt.job.id}: this attempt has been settled already")

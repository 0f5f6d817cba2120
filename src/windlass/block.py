"""`attempt.transaction()`: the writes of the handler and the completion of its job commit together, or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent import futures
from contextvars import ContextVar, Token
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

from .errors import Conflict, LeaseLost, StoreUnavailable, WindlassError
from .lifecycle import COMPLETED
from .operation import Flow, Operation, Runs, arun_flow, run_flow
from .outcome import Settlement, is_due_again
from .stores.store import Connections
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
    back, and no attempt is spent. A commit without an answer may have been made: then the job is completed, and the
    store accepts no other settlement of this attempt."""


class Block:
    """With `with` in a sync handler, with `async with` in an async one; gives a connection in a transaction.

    Its end settles the job on that connection and commits. If the lease was lost meanwhile, the block is rolled back
    and raises `LeaseLost`.
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
        """Remember how the attempt ends. It is written when the block ends."""
        if self._value is not NOTHING:
            raise Conflict(f"job {self.attempt.job.id}: this block has been given an outcome already")
        self.attempt.completion(value)  # refuses a value that cannot be stored while the handler can still react
        self._value = value

    def _settlement(self) -> Settlement:
        ended = self.attempt.done() if self._value is NOTHING else self.attempt.completion(self._value)
        return self.attempt.with_notes(ended)

    def _open(self) -> None:
        """From here on no renewal begins, and the block waits for one that is under way: in MongoDB a transaction
        collides with a renewal that was written after it began, and the handler would have to begin again."""
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
        """False after its end: an asyncio task that was begun in it may run longer."""
        return self.attempt.block is self

    def _settled(self, settlement: Settlement | None) -> None:
        self.attempt.settled, self.attempt.unconfirmed_settlement = True, settlement
        for tell in self.after_commit:
            tell()

    def _again(self, error: BaseException, *, in_settlement: bool = False) -> BlockConflict | None:
        if not self.connections.is_transient(error):
            return None
        message = f"job {self.attempt.job.id}: the database asked for another try: {error}"
        return BlockConflict(message, in_settlement=in_settlement)

    def _refused(self, error: BaseException, *, committing: bool = False) -> WindlassError | None:
        """The error to raise if a statement of ours has failed; None if the error is about the data."""
        if (conflict := self._again(error, in_settlement=not self.connections.was_undone(error))) is not None:
            return conflict
        if self.connections.is_unwilling(error, committing=committing):
            return BlockRefused(str(error).strip())
        return None

    # The way in and the way out, written once for `with` and `async with`

    def __enter__(self) -> Any:
        return run_flow(self._enter(), self.app)

    async def __aenter__(self) -> Any:
        return await arun_flow(self._enter(), self.app)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        run_flow(self._leave(error), self.app)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await arun_flow(self._leave(error), self.app)

    def _enter(self) -> Flow[Any]:
        self._open()
        try:
            if (renewal := self.attempt.renewal) is not None and not renewal.done():
                yield _AwaitRenewal(renewal)
            self._manager, self.connection = yield _Begin(self.connections)
            if tenant := self.attempt.job.tenant:
                yield from self._on_connection(lambda: self.app.store.name_tenant(tenant))
        except BaseException as error:
            self._close()
            if (refused := self._refused(error)) is not None:
                raise refused from error
            raise
        return self.connection

    def _leave(self, error: BaseException | None) -> Flow[None]:
        try:
            yield from (self._commit() if error is None else self._roll_back(error))
        finally:
            self._close()  # not before: until it has committed, a renewal would collide with it

    def _commit(self) -> Flow[None]:
        committing = False
        try:
            settlement = yield from self._settle()
            committing = True
            yield _End(self._manager, None)
        except BaseException as error:
            if (refused := self._refused(error, committing=committing)) is not None:
                raise refused from error
            raise
        self._settled(settlement)

    def _settle(self) -> Flow[Settlement]:
        try:
            settlement = self._settlement()
        except BaseException as error:
            yield _End(self._manager, error)
            raise
        yield from self._on_connection(lambda: self.attempt.settling(settlement))
        return settlement

    def _roll_back(self, error: BaseException) -> Flow[None]:
        try:
            yield _End(self._manager, error)
        except BaseException as other:
            if (conflict := self._again(other)) is not None:
                raise conflict from other
            raise
        if (conflict := self._again(error)) is not None:
            raise conflict from error

    def _on_connection(self, make: Callable[[], Operation[None]]) -> Flow[None]:
        """Run an operation in the block's transaction, which is rolled back if it fails."""
        try:
            yield _RunOn(self.connections, self.connection, make)
        except BaseException as error:
            yield _End(self._manager, error)
            raise


class _AwaitRenewal(NamedTuple):
    """A step: wait for a renewal of the lease that is under way."""

    renewal: futures.Future[None]

    def run(self, runs: Runs, /) -> None:
        futures.wait([self.renewal], RENEWAL_SECONDS)

    async def arun(self, runs: Runs, /) -> None:
        await asyncio.wait([asyncio.wrap_future(self.renewal)], timeout=RENEWAL_SECONDS)


class _Begin(NamedTuple):
    """A step: begin a transaction; its context manager and its connection."""

    connections: Connections

    def run(self, runs: Runs, /) -> tuple[Any, Any]:
        manager = self.connections.transaction()
        return manager, manager.__enter__()

    async def arun(self, runs: Runs, /) -> tuple[Any, Any]:
        manager = self.connections.atransaction()
        return manager, await manager.__aenter__()


class _RunOn(NamedTuple):
    """A step: an operation in that transaction. The schema needs no check: the job was claimed from it."""

    connections: Connections
    connection: Any
    make: Callable[[], Operation[None]]

    def run(self, runs: Runs, /) -> None:
        self.connections.run_on(self.connection, self.make)

    async def arun(self, runs: Runs, /) -> None:
        await self.connections.arun_on(self.connection, self.make)


class _End(NamedTuple):
    """A step: commit or, with an error, roll back."""

    manager: Any
    error: BaseException | None

    def run(self, runs: Runs, /) -> None:
        self.manager.__exit__(*self._reason())

    async def arun(self, runs: Runs, /) -> None:
        await self.manager.__aexit__(*self._reason())

    def _reason(self) -> tuple[Any, Any, Any]:
        return (None, None, None) if self.error is None else (type(self.error), self.error, self.error.__traceback__)


# The block that this code runs in: the jobs that it enqueues join the block's transaction.
joined: ContextVar[Block | None] = ContextVar("windlass_block", default=None)


def settle_or_raise(attempt: Attempt, settlement: Settlement) -> Operation[None]:
    app, following = attempt.app, settlement.continues
    refusals = yield from app.store.settle([settlement])
    if refusals:
        raise LeaseLost(f"job {attempt.job.id}: {refusals[0].reason}", attempt.job.id, attempt.token)
    if attempt.unconfirmed_settlement is not None:
        yield from _refuse_second(attempt, settlement)
    if following is not None:  # the worker that serves it may be another
        yield from app.store.hint([Hint("ready", following.queue)])
    elif is_due_again(settlement):
        yield from app.store.hint([Hint("ready", attempt.job.queue)])


def _refuse_second(attempt: Attempt, settlement: Settlement) -> Operation[None]:
    """The attempt has been completed before, in the caller's transaction. If that was rolled back, this settlement
    counts. If not, the store takes it for the same one, sent again, and has written nothing of it."""
    if settlement.state != COMPLETED:
        return  # the store refuses any other second outcome
    following = settlement.continues
    found = yield from attempt.app.store.get([attempt.job.id if following is None else following.id])
    if following is None and not found:
        return  # with keep=0 there is nothing to compare with
    if not found or (following is None and found[0].output_json != settlement.output):
        raise Conflict(f"job {attempt.job.id}: this attempt has been settled already")

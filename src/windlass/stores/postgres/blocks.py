"""Connections for handlers: plain ones, with the settings of the URL, in a READ COMMITTED transaction.

Their number is limited; further blocks wait for their turn. When a block ends, its session is reset, and the next block
gets a new object for it: code that kept the old object finds it closed.
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import cache, partial
from typing import Any

import psycopg
from psycopg import IsolationLevel, generators
from psycopg.pq import ExecStatus, PGconn, TransactionStatus

from ...errors import Conflict
from ...forks import PerLoop, PerProcess
from .borrowed import Home
from .errors import connecting
from .own import ANSWER_SECONDS, OwnAsyncConnection, OwnConnection, idle, place, usable

TRANSIENT = (psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected)
ENDED = (
    "the transaction of this block was ended in it, by a COMMIT or ROLLBACK of yours: the block itself ends it, "
    "together with the job. Raise to roll it back"
)
UNDONE = "The handler has swallowed this error in its block."
CLOSED = (
    "the connection of this block was closed in it, and its writes are rolled back: the block itself returns the "
    "connection. Raise to roll it back"
)
UNFINISHED = (
    "a statement, a COPY or a pipeline is still open on the connection of this block, so it cannot be committed: read "
    "all rows of a stream, or close it, and leave the pipeline before the block ends"
)
# In microseconds. Not as a text, which would change with the settings of the session.
BEGAN_AT = b"(EXTRACT(epoch FROM pg_catalog.now()) * 1000000)::bigint"
ENDED_MARK = "windlass: ended by hand"
# Where the cast fails, COMMIT is not reached. With now() in it the server does not try the cast beforehand.
COMMIT_IF_SAME = (
    b"SELECT CASE WHEN %%s = %%s THEN 0 ELSE ('%s ' || pg_catalog.now()::text)::integer END; COMMIT"
    % ENDED_MARK.encode()
)
RESET = "DISCARD ALL"
RESET_SECONDS = 5.0


class Remembering:
    """Part of a connection: its database, and the error that has aborted its transaction."""

    pgconn: Any
    lock: Any
    new_lock: Any
    _pipeline: Any
    broken: bool  # not by the handler
    answer_seconds: float | None = None  # no time-out for the statements of the handler
    home: Home | None = None
    aborted_by: psycopg.Error | None = None
    is_read_only = False
    abandoned = False  # it was cut, since something was still using it
    error: BaseException | None = None  # why the block ended
    began_at: bytes | None = None  # when the block's transaction began, which tells it from any other of the session

    def _exec_command(self, command: Any, *arguments: Any, **options: Any) -> Any:
        """psycopg begins and commits transactions with this. A transaction that was ended by hand, with another begun
        after it, looks like the first one from here. So the message with BEGIN asks for the start time of the
        transaction, and the message with COMMIT compares it."""
        together = self._pipeline is None  # a pipeline takes one statement at a time
        if together and isinstance(command, bytes) and command.startswith(b"BEGIN"):
            result = yield from self._send(command + b"; SELECT " + BEGAN_AT)
            self.began_at = result.get_value(0, 0)
            return result
        if together and command == b"COMMIT" and self.began_at is not None:
            return (yield from self._send(COMMIT_IF_SAME % (BEGAN_AT, self.began_at)))
        return (yield from super()._exec_command(command, *arguments, **options))  # type: ignore[misc]

    def _send(self, statements: bytes) -> Any:
        """In one message; the server skips all statements after an error."""
        self.pgconn.send_query(statements)
        results = yield from generators.execute(self.pgconn)
        if results[-1].status not in (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK):
            error = psycopg.errors.error_from_result(results[-1])
            if ENDED_MARK in str(error):
                raise Conflict(ENDED) from error
            raise error
        return results[-1]

    def remember(self, error: psycopg.Error) -> None:
        self.is_read_only = self.is_read_only or isinstance(error, psycopg.errors.ReadOnlySqlTransaction)
        aborted = self.pgconn.transaction_status == TransactionStatus.INERROR
        if aborted and not isinstance(error, psycopg.errors.InFailedSqlTransaction):
            self.aborted_by = error

    def check(self) -> None:
        """Explain the state of the transaction, before the database refuses the next statement."""
        match self.pgconn.transaction_status:
            case TransactionStatus.INERROR:
                error = self.aborted_by
                if isinstance(error, TRANSIENT):
                    error.add_note(UNDONE)
                    raise error
                kind, said = ("an error", "") if error is None else (type(error).__name__, f": {str(error).strip()}")
                raise Conflict(
                    f"your transaction was aborted by {kind}{said}\nNothing of this block is written. Let the error "
                    "leave the block, or put the statement that may fail into a savepoint "
                    "(with connection.transaction(): …)"
                ) from error
            case TransactionStatus.IDLE:
                raise Conflict(ENDED)
            case TransactionStatus.UNKNOWN if not self.broken:
                raise Conflict(CLOSED)
        if self.is_busy:
            raise Conflict(UNFINISHED)

    @property
    def is_busy(self) -> bool:
        """A generator such as `notifies()` holds the lock, although the server has nothing to do."""
        active = self.pgconn.transaction_status == TransactionStatus.ACTIVE
        return active or self._pipeline is not None or self.lock.locked()

    def abandon_if_busy(self) -> None:
        """A generator that will never be finished may hold its lock: to wait for it is to wait for ever. So the
        connection is cut, the server rolls back the transaction, and the connection gets a new lock."""
        if self.is_busy:
            with suppress(OSError), socket.socket(fileno=os.dup(self.pgconn.socket)) as line:
                line.shutdown(socket.SHUT_RDWR)
            self.lock, self._pipeline = self.new_lock(), None
            self.abandoned = True

    @contextmanager
    def kept_error(self) -> Iterator[None]:
        """To roll back on a connection that was cut fails. That must not hide why the block ended."""
        try:
            yield
        except psycopg.Error:
            if self.abandoned and self.error is not None:
                raise self.error from None
            raise


def was_undone(error: BaseException) -> bool:
    return UNDONE in getattr(error, "__notes__", ())


class BlockConnection(Remembering, OwnConnection):
    new_lock = staticmethod(threading.Lock)

    def wait(self, gen: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().wait(gen, *args, **kwargs)
        except psycopg.Error as error:
            self.remember(error)
            raise


class AsyncBlockConnection(Remembering, OwnAsyncConnection):
    new_lock = staticmethod(asyncio.Lock)

    async def wait(self, gen: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return await super().wait(gen, *args, **kwargs)
        except psycopg.Error as error:
            self.remember(error)
            raise


@contextmanager
def checked(connection: Any, answer_seconds: float) -> Iterator[None]:
    """Around statements of Windlass in a block: its transaction must still be open, and they have a time-out."""
    if not isinstance(connection, Remembering):
        yield
        return
    connection.check()
    connection.answer_seconds = answer_seconds
    try:
        yield
    finally:
        connection.answer_seconds = None


class Blocks:
    """`size` blocks at one time for threads, and for each event loop."""

    def __init__(self, url: str, given: dict[str, Any], size: int, home: Home, pooled: Callable[[], bool]) -> None:
        self.url, self.given, self.size, self.home, self.pooled = url, given, size, home, pooled
        self._of_threads = PerProcess(partial(_ThreadBlocks, size))
        self._of_loop = PerLoop(partial(_LoopBlocks, size))

    # Sync

    @contextmanager
    def transaction(self) -> Iterator[psycopg.Connection[Any]]:
        blocks = self._of_threads.get()
        with place(blocks.places):
            connection = self._take(blocks)
            try:
                with connection.kept_error(), connection.transaction():
                    try:
                        yield connection
                    except BaseException as error:
                        connection.error = error
                        raise
                    finally:
                        connection.abandon_if_busy()
                        connection.answer_seconds = ANSWER_SECONDS
            finally:
                self._give_back(connection, blocks)

    def _take(self, blocks: _ThreadBlocks) -> BlockConnection:
        while (connection := blocks.pop()) is not None:
            if usable(connection):
                return connection
            connection.close()
        with connecting(self.url):
            return self._as_new(BlockConnection.connect(**self.given))

    def _as_new(self, connection: BlockConnection) -> BlockConnection:
        connection.home = self.home
        connection.autocommit = True
        connection.isolation_level = IsolationLevel.READ_COMMITTED
        return connection

    def _give_back(self, connection: BlockConnection, blocks: _ThreadBlocks) -> None:
        in_use = not connection.lock.acquire(blocking=False)  # by a thread that the handler has not ended
        try:
            session, connection.pgconn = connection.pgconn, _nowhere()
        finally:
            if not in_use:
                connection.lock.release()
        successor = BlockConnection(session)
        kept = False
        try:
            if not in_use and not connection.is_read_only and self._may_be_kept(successor):
                self._as_new(successor).answer_seconds = RESET_SECONDS
                successor.execute(RESET, prepare=False)
                successor.answer_seconds = None
                blocks.kept.append(successor)
                kept = True
        except psycopg.Error:
            pass
        finally:  # a thread may be interrupted here
            if not kept:
                successor.close()

    def _may_be_kept(self, connection: BlockConnection | AsyncBlockConnection) -> bool:
        """A session behind a pooler is not reset: it belongs to the pooler."""
        return idle(connection) and not self.pooled()

    # Async

    @asynccontextmanager
    async def atransaction(self) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
        blocks = self._of_loop.get()
        async with blocks.places:
            connection = await self._atake(blocks)
            try:
                with connection.kept_error():
                    async with connection.transaction():
                        try:
                            yield connection
                        except BaseException as error:
                            connection.error = error
                            raise
                        finally:
                            connection.abandon_if_busy()
                            connection.answer_seconds = ANSWER_SECONDS
            finally:
                await self._agive_back(connection, blocks)

    async def _atake(self, blocks: _LoopBlocks) -> AsyncBlockConnection:
        while blocks.kept:
            connection = blocks.kept.pop()
            if usable(connection):
                return connection
            await connection.close()
        with connecting(self.url):
            return await self._aas_new(await AsyncBlockConnection.connect(**self.given))

    async def _aas_new(self, connection: AsyncBlockConnection) -> AsyncBlockConnection:
        connection.home = self.home
        await connection.set_autocommit(True)
        await connection.set_isolation_level(IsolationLevel.READ_COMMITTED)
        return connection

    async def _agive_back(self, connection: AsyncBlockConnection, blocks: _LoopBlocks) -> None:
        in_use = connection.lock.locked()  # by a task that the handler has not ended
        session, connection.pgconn = connection.pgconn, _nowhere()
        successor = AsyncBlockConnection(session)
        kept = False
        try:
            if not in_use and not connection.is_read_only and self._may_be_kept(successor):
                (await self._aas_new(successor)).answer_seconds = RESET_SECONDS
                await successor.execute(RESET, prepare=False)
                successor.answer_seconds = None
                blocks.kept.append(successor)
                kept = True
        except psycopg.Error:
            pass
        finally:
            if not kept:
                await successor.close()

    # Ending

    def close(self) -> None:
        blocks = self._of_threads.get()
        while (connection := blocks.pop()) is not None:
            connection.close()

    async def aclose_loop(self) -> None:
        blocks = self._of_loop.pop()
        while blocks is not None and blocks.kept:
            await blocks.kept.pop().close()


class _ThreadBlocks:
    def __init__(self, size: int) -> None:
        self.kept: list[BlockConnection] = []
        self.places = threading.BoundedSemaphore(size)

    def pop(self) -> BlockConnection | None:
        try:
            return self.kept.pop()
        except IndexError:  # another thread may have been quicker
            return None


class _LoopBlocks:
    def __init__(self, size: int) -> None:
        self.kept: list[AsyncBlockConnection] = []
        self.places = asyncio.Semaphore(size)


@cache
def _nowhere() -> Any:
    """A closed connection, for old objects whose session has a new object now."""
    closed = PGconn.connect_start(b"no such thing")
    closed.finish()
    return closed

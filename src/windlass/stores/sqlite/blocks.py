"""Connections for handlers: to the file of the queue, in a transaction that holds the write lock."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, NoReturn, TypeVar
from weakref import WeakSet

from ...errors import Conflict
from ...operation import Begin, Commit, Rows, Statement
from ..sql.values import bound
from .borrowed import Borrowed
from .forking import gate
from .own import BUSY_SECONDS, OwnLink, mapped, patiently

T = TypeVar("T")
Values = Sequence[Any] | dict[str, Any]

ENDING = ("commit", "rollback", "close", "executescript")  # the last commits before it begins
USE_SECONDS = 1.0  # that we wait for a statement of another thread
STOP_SECONDS = 5.0  # for statements of other threads to end, once they are interrupted
IN_USE = "another thread is still using the connection of this block: let it end before the block does"
REFUSAL = (
    "the writes of this block and the completion of the job commit together, when the block ends: it cannot be "
    "committed, rolled back or closed before. Raise to roll it back; SAVEPOINT, RELEASE and ROLLBACK TO can be used"
)


class BlockConnection:
    """A `sqlite3.Connection` for the length of a block. The end of the block ends its transaction."""

    def __init__(self, raw: sqlite3.Connection, address: str) -> None:
        self.raw, self.address, self.ended = raw, address, False
        self._cursors: WeakSet[sqlite3.Cursor] = WeakSet()
        # One thread at a time: sqlite3 crashes if a cursor is closed while another thread uses it.
        self._lock = threading.RLock()

    def execute(self, sql: str, values: Values = ()) -> sqlite3.Cursor:
        return self.cursor().execute(sql, values)

    def executemany(self, sql: str, values: Iterable[Values]) -> sqlite3.Cursor:
        return self.cursor().executemany(sql, values)

    def cursor(self) -> BlockCursor:
        with self._lock:
            cursor = self.raw.cursor(BlockCursor)
            cursor.block = self
            self._cursors.add(cursor)
            return cursor

    def stop_statements(self) -> bool:
        """Interrupt the statements of other threads: whether there were any. This thread has the connection to itself
        then, and the others can begin no statement, because the block has ended."""
        interrupted, deadline = False, time.monotonic() + STOP_SECONDS
        while not self._lock.acquire(timeout=0.01):
            interrupted = True
            self.raw.interrupt()
            if time.monotonic() > deadline:
                raise Conflict(IN_USE)
        return interrupted

    def release(self) -> None:
        self._lock.release()

    def close_cursors(self) -> None:
        """A cursor with unread rows keeps the file locked, also after the connection is closed."""
        for cursor in list(self._cursors):
            cursor.close()

    def fetchall(self, sql: str, values: Values = ()) -> list[Any]:
        return self.execute(sql, values).fetchall()

    def __getattr__(self, name: str) -> Any:
        if name in ENDING:
            raise Conflict(f"{name}: {REFUSAL}")
        return getattr(self.raw, name)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """For our own statements. They wait only a moment for a statement of another thread."""
        if not self._lock.acquire(timeout=USE_SECONDS):
            raise Conflict(IN_USE)
        try:
            with self.unended():
                yield
        finally:
            self._lock.release()

    @contextmanager
    def unended(self) -> Iterator[None]:
        """A statement after the end of the block's transaction would be a transaction of its own."""
        with self._lock:
            if self.ended:
                raise Conflict("the block has ended: its connection cannot be used any more")
            if not self.raw.in_transaction:
                raise Conflict("SQLite has rolled this block back by itself (a full disk, OR ROLLBACK): let it end")
            try:
                yield
            except sqlite3.DatabaseError as error:
                if getattr(error, "sqlite_errorcode", None) != sqlite3.SQLITE_AUTH:
                    raise
                raise Conflict(REFUSAL) from error

    @contextmanager
    def reading(self) -> Iterator[None]:
        with self._lock:
            yield


class BlockCursor(sqlite3.Cursor):
    block: BlockConnection

    @property
    def connection(self) -> Any:
        return self.block

    def execute(self, sql: str, values: Any = (), /) -> BlockCursor:
        with self.block.unended():
            super().execute(sql, values)
        return self

    def executemany(self, sql: str, values: Iterable[Any], /) -> BlockCursor:
        with self.block.unended():
            super().executemany(sql, values)
        return self

    def executescript(self, script: str, /) -> NoReturn:
        raise Conflict(f"executescript: {REFUSAL}")

    def fetchone(self) -> Any:
        with self.block.reading():
            return super().fetchone()

    def fetchmany(self, size: int | None = None) -> list[Any]:
        with self.block.reading():
            return super().fetchmany(self.arraysize if size is None else size)

    def fetchall(self) -> list[Any]:
        with self.block.reading():
            return super().fetchall()

    def __next__(self) -> Any:
        with self.block.reading():
            return super().__next__()


# The block around this code. It has locked its file, so a write on another connection here would wait for ever.
around: ContextVar[BlockConnection | None] = ContextVar("windlass_sqlite_block", default=None)


def is_locked_here(address: str) -> bool:
    block = around.get()
    return block is not None and block.address == address and not block.ended


@contextmanager
def inside(block: BlockConnection) -> Iterator[None]:
    outer = around.set(block)
    try:
        yield
    finally:
        block.ended = True  # for threads and tasks that outlive it
        around.reset(outer)


def end_nothing(action: int, *_: object) -> int:
    """SQLite calls this for each statement that it prepares."""
    return sqlite3.SQLITE_DENY if action == sqlite3.SQLITE_TRANSACTION else sqlite3.SQLITE_OK


class MemoryLink(Borrowed):
    """In a block on a database in memory, whose connections lock tables, not files: a table that the queue is just
    reading cannot be written. A statement meets that lock before it has changed anything, so it can be tried again."""

    def _statement(self, step: Statement) -> Rows:
        rows: list[Any] = []
        for text, values in bound(step):
            rows += patiently(partial(self._rows, text, values), BUSY_SECONDS)
        return rows

    def _rows(self, text: str, values: Any) -> Rows:
        return self.cursor.execute(text, values).fetchall()


class AsyncBlockConnection:
    """The same, awaited. It has a separate thread, so that the event loop never waits for the disk."""

    def __init__(self, block: BlockConnection, thread: ThreadPoolExecutor) -> None:
        self.block, self._thread = block, thread

    async def call(self, function: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, lambda: function(*arguments))

    async def execute(self, sql: str, values: Values = ()) -> AsyncCursor:
        return AsyncCursor(self, await self.call(self.block.execute, sql, values))

    async def executemany(self, sql: str, values: Iterable[Values]) -> AsyncCursor:
        return AsyncCursor(self, await self.call(self.block.executemany, sql, values))

    async def fetchall(self, sql: str, values: Values = ()) -> list[Any]:
        return await self.call(self.block.fetchall, sql, values)


class AsyncCursor:
    def __init__(self, connection: AsyncBlockConnection, raw: sqlite3.Cursor) -> None:
        self._connection, self.raw = connection, raw

    async def fetchone(self) -> Any:
        return await self._connection.call(self.raw.fetchone)

    async def fetchall(self) -> list[Any]:
        return await self._connection.call(self.raw.fetchall)

    @property
    def rowcount(self) -> int:
        return self.raw.rowcount

    @property
    def lastrowid(self) -> int | None:
        return self.raw.lastrowid


def begin(connection: sqlite3.Connection, path: str) -> None:
    OwnLink(connection, path, BUSY_SECONDS).execute(Begin())
    connection.set_authorizer(end_nothing)


def finish(block: BlockConnection, path: str, *, commit: bool) -> None:
    connection = block.raw
    with gate.inside(), mapped(path):
        interrupted = block.stop_statements()
        try:
            connection.set_authorizer(None)
            block.close_cursors()
            if commit and interrupted:
                raise Conflict(IN_USE)
            if commit:
                OwnLink(connection, path, BUSY_SECONDS).execute(Commit())
        finally:
            if connection.in_transaction:
                connection.rollback()
            connection.close()
            block.release()


@contextmanager
def transaction(
    open_connection: Callable[[], sqlite3.Connection], path: str, address: str
) -> Iterator[BlockConnection]:
    block = BlockConnection(open_connection(), address)
    commit = False
    try:
        begin(block.raw, path)
        with inside(block):
            yield block
        commit = True
    finally:
        finish(block, path, commit=commit)


@asynccontextmanager
async def atransaction(
    open_connection: Callable[[], sqlite3.Connection], path: str, address: str
) -> AsyncIterator[AsyncBlockConnection]:
    with ThreadPoolExecutor(1, thread_name_prefix="windlass-block") as thread:
        loop = asyncio.get_running_loop()
        block = BlockConnection(await loop.run_in_executor(thread, open_connection), address)
        commit = False
        try:
            await loop.run_in_executor(thread, begin, block.raw, path)
            with inside(block):
                yield AsyncBlockConnection(block, thread)
            commit = True
        finally:
            await loop.run_in_executor(thread, lambda: finish(block, path, commit=commit))

"""Connections for handlers: to the file of the queue, in a transaction that holds the write lock."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, NoReturn
from weakref import WeakSet

from ...errors import Conflict
from ...logs import Log
from ...operation import Begin, Commit, Rows, Statement
from ..sql.values import bound
from .borrowed import Borrowed
from .forking import gate
from .link import SqliteLink
from .own import BUSY_SECONDS, OwnLink, mapped, patiently

log = Log("windlass.sqlite")
Values = Sequence[Any] | dict[str, Any]

ENDING = ("commit", "rollback", "close", "executescript")  # the last commits before it begins
USE_SECONDS = 1.0  # that we wait for a statement of another thread
STOP_SECONDS = 5.0  # for statements of other threads to end, once they are interrupted
IN_USE = "another thread is still using the connection of this block: let it end before the block does"
ENDED = "the block has ended: its connection cannot be used any more"
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
        self._uses = 0  # statements of the thread that has the lock: one can contain another
        self.interrupted = self._abandoned = False

    def execute(self, sql: str, values: Values = ()) -> sqlite3.Cursor:
        return self.cursor().execute(sql, values)

    def executemany(self, sql: str, values: Iterable[Values]) -> sqlite3.Cursor:
        return self.cursor().executemany(sql, values)

    def cursor(self) -> BlockCursor:
        with self.held():
            cursor = self.raw.cursor(BlockCursor)
            cursor.block = self
            self._cursors.add(cursor)
            return cursor

    # The end of the block

    def take(self) -> bool:
        """Stop the statements of other threads, so that this thread has the connection to itself. False if one of them
        cannot be interrupted. The others can begin no statement, because the block has ended."""
        deadline = time.monotonic() + STOP_SECONDS
        while not self._lock.acquire(timeout=0.01):
            self.interrupted = True
            self.raw.interrupt()
            if time.monotonic() > deadline:
                return False
        return True

    def release(self) -> None:
        self._lock.release()

    def abandon(self) -> None:
        """The thread that still uses the connection closes it, when its statement ends."""
        self._abandoned = True
        self._close_if_unused()

    def _close_if_unused(self) -> None:
        """`abandon` calls it after it has set the flag. A thread calls it after it has released the lock. So one of
        them closes the connection, in any order."""
        if not self._lock.acquire(blocking=False):
            return  # the thread that has the lock calls this next
        try:
            if self._abandoned and not self._uses:
                self._abandoned = False
                with gate.inside():
                    self.roll_back_and_close()
        except sqlite3.Error as error:
            log.warning("the connection of a block that has ended: %s", error)
        finally:
            self._lock.release()

    def free(self) -> None:
        """A cursor with unread rows keeps the file locked, also after the connection is closed."""
        self.raw.set_authorizer(None)
        for cursor in list(self._cursors):
            cursor.close()

    def roll_back_and_close(self) -> None:
        try:
            self.free()
            if self.raw.in_transaction:
                self.raw.rollback()
        finally:
            self.raw.close()

    # Use

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
        with self.held():
            self.check_unended()
            if not self.raw.in_transaction:
                raise Conflict("SQLite has rolled this block back by itself (a full disk, OR ROLLBACK): let it end")
            try:
                yield
            except sqlite3.DatabaseError as error:
                if getattr(error, "sqlite_errorcode", None) != sqlite3.SQLITE_AUTH:
                    raise
                raise Conflict(REFUSAL) from error

    def check_unended(self) -> None:
        if self.ended:
            raise Conflict(ENDED)

    def until_interrupted(self, values: Iterable[Values]) -> Iterator[Values]:
        """SQLite interrupts nothing while a generator makes the next row."""
        for value in values:
            if self.interrupted:
                raise Conflict(ENDED)
            yield value

    @contextmanager
    def held(self) -> Iterator[None]:
        """For one thread at a time. The last one closes the connection of an abandoned block."""
        try:
            with self._lock:
                self._uses += 1
                try:
                    yield
                finally:
                    self._uses -= 1
        finally:
            if self._abandoned:
                self._close_if_unused()


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
            super().executemany(sql, self.block.until_interrupted(values))
        return self

    def executescript(self, script: str, /) -> NoReturn:
        raise Conflict(f"executescript: {REFUSAL}")

    def fetchone(self) -> Any:
        with self.block.held():
            return super().fetchone()

    def fetchmany(self, size: int | None = None) -> list[Any]:
        with self.block.held():
            return super().fetchmany(self.arraysize if size is None else size)

    def fetchall(self) -> list[Any]:
        with self.block.held():
            return super().fetchall()

    def __next__(self) -> Any:
        with self.block.held():
            return super().__next__()

    def close(self) -> None:
        with self.block.held():
            super().close()


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


def begin(block: BlockConnection, path: str) -> None:
    """It gives up the wait for the lock when the block has ended, because its task was cancelled."""
    link = SqliteLink(block.raw)

    def ask() -> Rows:
        block.check_unended()
        return link.execute(Begin())

    with block.held(), mapped(path):
        patiently(ask, BUSY_SECONDS)
        block.raw.set_authorizer(end_nothing)


def finish(block: BlockConnection, path: str, *, commit: bool) -> None:
    block.ended = True
    if not block.take():
        log.warning("%s stays locked: another thread runs a statement of a block that has ended", path)
        block.abandon()
        if commit:
            raise Conflict(IN_USE)
        return
    try:
        with gate.inside(), mapped(path):
            _end(block, path, commit=commit)
    finally:
        block.release()


def _end(block: BlockConnection, path: str, *, commit: bool) -> None:
    try:
        if commit and block.interrupted:
            raise Conflict(IN_USE)
        if commit:
            block.free()
            OwnLink(block.raw, path, BUSY_SECONDS).execute(Commit())
    finally:
        block.roll_back_and_close()


@contextmanager
def transaction(
    open_connection: Callable[[], sqlite3.Connection], path: str, address: str
) -> Iterator[BlockConnection]:
    block = BlockConnection(open_connection(), address)
    commit = False
    try:
        begin(block, path)
        with inside(block):
            yield block
        commit = True
    finally:
        finish(block, path, commit=commit)

"""SQLite connections: one thread per process has the connection that writes, so no event loop waits for a lock.

A forked child opens new connections: SQLite's locks do not survive a fork.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, TypeVar
from uuid import uuid4

from ...errors import InvalidInput
from ...forks import PerProcess
from ...logs import Log
from ...operation import Operation, Rows, Statement, adrive, arun, drive, run
from ..sql.query import Query
from ..store import Purpose
from .async_blocks import AsyncBlockConnection, atransaction
from .blocks import BlockConnection, MemoryLink, is_locked_here, transaction
from .borrowed import borrow, borrow_async
from .own import BUSY_SECONDS, OwnLink, is_unwilling, mapped
from .writer import Writer, read_with

T = TypeVar("T")
log = Log("windlass.sqlite")

SHORT_WAIT_MILLISECONDS = 50
DATABASES = Query("databases", "PRAGMA database_list")


def wal_is_safe(version: tuple[int, int, int]) -> bool:
    """Older versions could corrupt a database in WAL mode, when two connections write and checkpoint at once."""
    return version >= (3, 51, 3) or (3, 50, 7) <= version < (3, 51, 0) or (3, 44, 6) <= version < (3, 45, 0)


class Writing:
    """The writer of one process, if it is open."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.writer: Writer | None = None


class SqliteConnections:
    """The one connection of this process to one file."""

    def __init__(self, path: str, journal_mode: str | None = None, table: str = "windlass_jobs") -> None:
        if journal_mode not in (None, "wal", "delete"):
            raise InvalidInput(f"journal_mode is 'wal' or 'delete', not {journal_mode!r}")
        self.path, self.journal_mode, self.table = path, journal_mode, table
        self.in_memory = path == ":memory:"
        self._name = f"windlass-{uuid4().hex}"
        self._writing = PerProcess(Writing)  # a child does not close its parent's: that would release its locks
        self._has_logged_journal = False

    @property
    def address(self) -> str:
        """The file to open. In memory: a database that the connections of this process share, and that lasts as long as
        one of them. A forked child begins with an empty one."""
        return f"file:{self._name}-{os.getpid()}?mode=memory&cache=shared" if self.in_memory else self.path

    # One writer for all purposes, since a file has one writer at a time.

    def run(self, make: Callable[[], Operation[T]], purpose: Purpose = Purpose.CALLS) -> T:
        if is_locked_here(self.address):
            return read_with(self._open_link(), make)  # the writer may be waiting for the block around this call
        return self._its_writer().submit(make).result()

    async def arun(self, make: Callable[[], Operation[T]], purpose: Purpose = Purpose.CALLS) -> T:
        if is_locked_here(self.address):
            return await asyncio.to_thread(lambda: read_with(self._open_link(), make))
        return await asyncio.wrap_future(self._its_writer().submit(make))

    def _open_link(self) -> OwnLink:
        return OwnLink(self.open(), self.path, BUSY_SECONDS)

    def open(self) -> sqlite3.Connection:
        with mapped(self.path):
            connection = sqlite3.connect(
                self.address, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False,
                cached_statements=256, uri=self.in_memory,
            )  # fmt: skip
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA cache_spill = OFF")  # then a large transaction waits for readers only at its end
            self._choose_journal(connection)
            connection.execute(f"PRAGMA busy_timeout = {SHORT_WAIT_MILLISECONDS}")
        return connection

    def _choose_journal(self, connection: sqlite3.Connection) -> None:
        (current,) = connection.execute("PRAGMA journal_mode").fetchone()
        safe = wal_is_safe(sqlite3.sqlite_version_info)
        wanted = self.journal_mode or ("wal" if safe else None)
        if wanted and current not in (wanted, "memory"):
            connection.execute(f"PRAGMA journal_mode = {wanted}")
        elif not wanted and not self._has_logged_journal:
            self._has_logged_journal = True
            log.info(
                "%s keeps its journal mode (%s), which is safe. WAL mode is faster, but SQLite %s has a fault in it "
                "that 3.51.3 mends; ?journal_mode=wal in the URL overrides", self.path, current, sqlite3.sqlite_version,
            )  # fmt: skip

    def _its_writer(self) -> Writer:
        writing = self._writing.get()
        with writing.lock:
            if writing.writer is None:
                writing.writer = Writer(self._open_link)
            return writing.writer

    # For handlers

    def transaction(self) -> AbstractContextManager[BlockConnection]:
        return transaction(self.open, self.path, self.address)

    def atransaction(self) -> AbstractAsyncContextManager[AsyncBlockConnection]:
        return atransaction(self.open, self.path, self.address)

    def is_transient(self, error: BaseException) -> bool:
        return isinstance(error, sqlite3.OperationalError) and "locked" in str(error)

    def was_undone(self, error: BaseException) -> bool:
        return False  # an error rolls back a statement, not the transaction

    is_unwilling = staticmethod(is_unwilling)

    # The caller's own

    def run_on(self, connection: Any, make: Callable[[], Operation[T]]) -> T:
        if isinstance(connection, BlockConnection):
            kind = MemoryLink if self.in_memory else None
            with connection.alone(), borrow(connection.raw, kind) as link:
                drive(self._check_file(connection.address), link)
                return drive(make(), link)
        with borrow(connection) as link:
            drive(self._check_file(), link)
            return drive(make(), link) if link.begun else run(make, link)

    async def arun_on(self, connection: Any, make: Callable[[], Operation[T]]) -> T:
        if isinstance(connection, AsyncBlockConnection):
            return await connection.call(self.run_on, connection.block, make)
        if isinstance(connection, sqlite3.Connection):
            # It blocks, as any other call on this connection does: the caller has chosen it.
            return self.run_on(connection, make)
        async with borrow_async(connection) as link:
            await adrive(self._check_file(), link)
            return await adrive(make(), link) if link.begun else await arun(make, link)

    def _check_file(self, address: str | None = None) -> Operation[None]:
        """A connection to another file would take the job to where no worker looks."""
        if self.in_memory:
            if address == self.address:
                return
            raise InvalidInput("a queue in memory (sqlite://) can be reached by no connection but its own: name a file")
        rows = yield Statement(DATABASES)
        if len(rows) > 1:
            rows = yield from self._holders(rows)
        ours = os.stat(self.path)
        files = [row[2] for row in rows if row[2] and os.path.exists(row[2])]
        if not any(os.path.samestat(ours, os.stat(file)) for file in files):
            raise InvalidInput(
                f"this connection is open on {', '.join(files) or 'a database in memory'}; the queue is in {self.path}"
            )

    def _holders(self, databases: Rows) -> Operation[Rows]:
        """The one of several databases in which SQLite finds our tables by name: it searches temporary tables first,
        then the main database, then attached ones."""
        for row in sorted(databases, key=lambda row: (row[1] != "temp", row[0])):
            name = row[1].replace('"', '""')
            text = f'SELECT 1 FROM "{name}".sqlite_master WHERE name = :table'  # noqa: S608
            if (yield Statement(Query("holds", text), {"table": self.table})):
                return [row]
        return databases

    def close(self) -> None:
        writing = self._writing.get()
        with writing.lock:
            writer, writing.writer = writing.writer, None
        if writer is not None:
            writer.close()

    async def aclose_loop(self) -> None:
        """Nothing: no connection belongs to an event loop."""

    async def aclose(self) -> None:
        await asyncio.to_thread(self.close)  # it waits for calls, and they may wait for a block of this event loop

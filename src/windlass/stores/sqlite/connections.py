"""SQLite connections: one thread per process owns the one that writes, so no event loop ever waits for a lock.

A forked child opens its own: SQLite's locks do not survive a fork.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

from ...errors import InvalidInput, SchemaMismatch, StoreUnavailable
from ...operation import Begin, Commit, Operation, Rows, Statement, Step, adrive, arun, drive, run
from ..sql.query import Query
from .borrowed import borrow, borrow_async
from .forking import gate
from .link import SqliteLink

T = TypeVar("T")
log = logging.getLogger("windlass.sqlite")

BUSY_SECONDS = 10.0
SHORT_WAIT_MILLISECONDS = 50
DATABASES = Query("databases", "PRAGMA database_list")


def wal_is_safe(version: tuple[int, int, int]) -> bool:
    """Before these, two connections that write and checkpoint at once could corrupt a database in WAL mode."""
    return version >= (3, 51, 3) or (3, 50, 7) <= version < (3, 51, 0) or (3, 44, 6) <= version < (3, 45, 0)


class OwnLink(SqliteLink):
    """A connection of ours: its errors are told in our terms."""

    def __init__(self, connection: sqlite3.Connection, path: str, patience: float = 0.0) -> None:
        super().__init__(connection)
        self.path, self.patience = path, patience

    def execute(self, step: Step) -> Rows:
        with mapped(self.path):
            return self._patiently(step) if takes_lock(step) else super().execute(step)

    def _patiently(self, step: Step) -> Rows:
        """SQLite's own waiting looks ever more seldom, and whoever has waited longest gets the least: so many short
        waits of it, one after the other."""
        deadline = time.monotonic() + self.patience
        while True:
            try:
                return super().execute(step)
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or time.monotonic() >= deadline:
                    raise
                time.sleep(random.uniform(0.001, 0.01))


def takes_lock(step: Step) -> bool:
    """What meets a lock before it has done anything, and so can be tried again."""
    if isinstance(step, Statement):
        return step.alone and len(step.query.statements) == 1 and len(step.each or (None,)) == 1
    return isinstance(step, Begin | Commit)


@contextmanager
def mapped(path: str) -> Iterator[None]:
    try:
        yield
    except sqlite3.OperationalError as error:
        text = str(error)
        if "locked" in text or "busy" in text:
            raise StoreUnavailable(
                f"{path} was locked by someone else for {BUSY_SECONDS:.0f} s. If that is a transaction of your own, "
                "pass its connection (connection=…), so that the job becomes part of it; and run app.migrate() before "
                "it, since the schema is not made in it"
            ) from error
        if "no such table" in text or "no such column" in text:
            raise SchemaMismatch(f"{text} in {path}: run app.migrate(), or windlass migrate") from error
        raise StoreUnavailable(f"{path}: {text}") from error
    except sqlite3.DatabaseError as error:
        if type(error) is not sqlite3.DatabaseError:
            raise  # a mistake of ours, not the file's
        raise StoreUnavailable(f"{path}: {error}") from error


class SqliteConnections:
    """The one connection of this process to one file."""

    def __init__(self, path: str, journal_mode: str | None = None) -> None:
        if journal_mode not in (None, "wal", "delete"):
            raise InvalidInput(f"journal_mode is 'wal' or 'delete', not {journal_mode!r}")
        self.path, self.journal_mode = path, journal_mode
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._thread: ThreadPoolExecutor | None = None
        self._link: OwnLink | None = None

    def run(self, make: Callable[[], Operation[T]]) -> T:
        return self._writer().submit(self._run, make).result()

    async def arun(self, make: Callable[[], Operation[T]]) -> T:
        return await asyncio.wrap_future(self._writer().submit(self._run, make))

    def _run(self, make: Callable[[], Operation[T]]) -> T:
        with gate.inside():
            return self._run_inside(make)

    def _run_inside(self, make: Callable[[], Operation[T]]) -> T:
        if self._link is None:
            self._link = OwnLink(self.open(), self.path, BUSY_SECONDS)
        try:
            return run(make, self._link)
        finally:
            if self._link.connection.in_transaction:
                self._link.connection.rollback()

    def open(self) -> sqlite3.Connection:
        with mapped(self.path):
            connection = sqlite3.connect(
                self.path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False, cached_statements=256
            )
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA cache_spill = OFF")  # a large transaction meets readers' locks only at its end
            self._choose_journal(connection)
            connection.execute(f"PRAGMA busy_timeout = {SHORT_WAIT_MILLISECONDS}")
        return connection

    def _choose_journal(self, connection: sqlite3.Connection) -> None:
        (current,) = connection.execute("PRAGMA journal_mode").fetchone()
        safe = wal_is_safe(sqlite3.sqlite_version_info)
        wanted = self.journal_mode or ("wal" if safe else None)
        if wanted and current not in (wanted, "memory"):
            connection.execute(f"PRAGMA journal_mode = {wanted}")
        elif not wanted:
            log.info(
                "%s keeps its journal mode (%s): SQLite %s has a fault in WAL mode that 3.51.3 mends; "
                "?journal_mode=wal in the URL overrides", self.path, current, sqlite3.sqlite_version,
            )  # fmt: skip

    def _writer(self) -> ThreadPoolExecutor:
        if self._pid != os.getpid():
            _kept_from_collection.append(self._link)  # closing it here would drop the parent's locks
            self._pid, self._lock, self._thread, self._link = os.getpid(), threading.Lock(), None, None
        with self._lock:
            if self._thread is None:
                self._thread = ThreadPoolExecutor(1, thread_name_prefix="windlass-sqlite")
            return self._thread

    # The caller's own

    def run_on(self, connection: Any, make: Callable[[], Operation[T]]) -> T:
        with borrow(connection) as link:
            drive(self._check_file(), link)
            return drive(make(), link) if link.begun else run(make, link)

    async def arun_on(self, connection: Any, make: Callable[[], Operation[T]]) -> T:
        if isinstance(connection, sqlite3.Connection):
            # It blocks as any other call on it does: that is the caller's choice of connection.
            return self.run_on(connection, make)
        async with borrow_async(connection) as link:
            await adrive(self._check_file(), link)
            return await adrive(make(), link) if link.begun else await arun(make, link)

    def _check_file(self) -> Operation[None]:
        """A connection to another file would take the job to where nobody looks for it."""
        if self.path == ":memory:":
            raise InvalidInput("a queue in memory (sqlite://) can be reached by no connection but its own: name a file")
        rows = yield Statement(DATABASES)
        ours = os.stat(self.path)
        files = [row[2] for row in rows if row[2] and os.path.exists(row[2])]
        if not any(os.path.samestat(ours, os.stat(file)) for file in files):
            raise InvalidInput(
                f"this connection is open on {', '.join(files) or 'a database in memory'}; the queue is in {self.path}"
            )

    def close(self) -> None:
        if self._pid != os.getpid():
            return
        with self._lock:
            thread, self._thread = self._thread, None
        if thread is not None:
            thread.submit(self._close_link).result()
            thread.shutdown()

    def _close_link(self) -> None:
        if self._link is not None:
            self._link.connection.close()
            self._link = None

    async def aclose_loop(self) -> None:
        """Nothing here belongs to an event loop."""

    async def aclose(self) -> None:
        self.close()


_kept_from_collection: list[Any] = []

"""PostgreSQL connections: a small pool of our own, for threads and for each event loop, and the caller's own.

The pool has neither threads nor tasks, so there is nothing to end when a loop does, and a forked child simply starts
an empty one.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import psycopg
from psycopg.rows import tuple_row

from ...errors import InvalidInput
from ...operation import (
    Begin,
    Commit,
    Copy,
    Operation,
    Rollback,
    Rows,
    Sleep,
    Statement,
    Step,
    Transient,
    adrive,
    arun,
    drive,
    run,
)
from ..urls import without_password
from . import arrays
from .asking import ask, ready
from .blocks import TRANSIENT, Blocks
from .borrowed import Home, borrow, borrow_async
from .errors import mapped

T = TypeVar("T")

CONTROL = {Begin: "BEGIN", Commit: "COMMIT", Rollback: "ROLLBACK"}
SETTINGS: dict[str, Any] = {
    "application_name": "windlass",
    "connect_timeout": 10,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
}
# A plan that was made and kept while the queue was empty would read the whole table when it is full.
NO_SEQUENTIAL_SCANS = "-c enable_seqscan=off"
WHO = "SELECT pg_backend_pid()"


def has_rows(cursor: psycopg.Cursor[Any] | psycopg.AsyncCursor[Any]) -> bool:
    """What `cursor.description` would tell too, by describing every column."""
    return cursor.pgresult is not None and cursor.pgresult.status == psycopg.pq.ExecStatus.TUPLES_OK


class SyncLink:
    """Steps on a psycopg connection of ours, which is in autocommit mode."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self.connection = connection
        arrays.register(connection)
        self.cursor = connection.cursor(row_factory=tuple_row, binary=True)
        self.mapped = mapped(connection=connection)

    def execute(self, step: Step) -> Rows:
        with self.mapped:
            match step:
                case Statement(query=query, parameters=parameters):
                    return self._statements(query.binary if parameters else query.statements, parameters)
                case Copy():
                    with self.cursor.copy(copy_statement(step)) as copy:
                        copy.set_types(list(step.types))
                        for row in step.rows:
                            copy.write_row(row)
                    return ()
                case Sleep(seconds=seconds):
                    time.sleep(seconds)
                    return ()
                case _:
                    self.cursor.execute(CONTROL[type(step)])
                    return ()

    def _statements(self, statements: tuple[str, ...], parameters: Mapping[str, Any]) -> Rows:
        for statement in statements:
            self.cursor.execute(statement, parameters or None)
        return self.cursor.fetchall() if has_rows(self.cursor) else ()


class AsyncLink:
    """`SyncLink`, awaited."""

    def __init__(self, connection: psycopg.AsyncConnection[Any]) -> None:
        self.connection = connection
        arrays.register(connection)
        self.cursor = connection.cursor(row_factory=tuple_row, binary=True)
        self.mapped = mapped(connection=connection)

    async def execute(self, step: Step) -> Rows:
        with self.mapped:
            match step:
                case Statement(query=query, parameters=parameters):
                    return await self._statements(query.binary if parameters else query.statements, parameters)
                case Copy():
                    async with self.cursor.copy(copy_statement(step)) as copy:
                        copy.set_types(list(step.types))
                        for row in step.rows:
                            await copy.write_row(row)
                    return ()
                case Sleep(seconds=seconds):
                    await asyncio.sleep(seconds)
                    return ()
                case _:
                    await self.cursor.execute(CONTROL[type(step)])
                    return ()

    async def _statements(self, statements: tuple[str, ...], parameters: Mapping[str, Any]) -> Rows:
        for statement in statements:
            await self.cursor.execute(statement, parameters or None)
        return await self.cursor.fetchall() if has_rows(self.cursor) else ()


def read_url(url: str) -> dict[str, Any]:
    given: dict[str, Any] | None = None
    with suppress(psycopg.ProgrammingError):
        given = psycopg.conninfo.conninfo_to_dict(url)
    # libpq's own words may show a part of the password: one that is not escaped is taken for a port.
    if given is None or not str(given.get("port", 0)).replace(",", "").isdigit():
        raise InvalidInput(
            f"{without_password(url)} cannot be read as a PostgreSQL URL, postgresql://user:password@host:port/name"
            "?option=value; special characters in a name or a password are written as %40 and the like"
        )
    return given


def copy_statement(step: Copy) -> str:
    return f"COPY {step.table} ({', '.join(step.columns)}) FROM STDIN (FORMAT binary)"


def usable(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> bool:
    """Idle, and silent: an idle connection that has something to say was ended."""
    return idle(connection) and not ready(connection.fileno(), 0)


def idle(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> bool:
    """Not closed, and in no transaction."""
    return bool(connection.pgconn.transaction_status == psycopg.pq.TransactionStatus.IDLE)


class PostgresConnections:
    """Connections to one server; those that callers lend must lead to `table`."""

    def __init__(self, url: str, size: int, table: str) -> None:
        self.url, self.size = url, size
        self.home = Home(table, without_password(url))
        self.given = read_url(url)
        self.pooled = False
        self.blocks = Blocks(url, SETTINGS | self.given)
        self.transaction, self.atransaction = self.blocks.transaction, self.blocks.atransaction
        self._takes_options = True
        self._pid = os.getpid()
        self._idle: list[SyncLink] = []
        self._places = threading.BoundedSemaphore(size)
        self._loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _LoopPool] = weakref.WeakKeyDictionary()

    def settings(self) -> dict[str, Any]:
        """What a connection is opened with: the URL's own settings win."""
        options = f"{self.given.get('options') or ''} {NO_SEQUENTIAL_SCANS if self._takes_options else ''}".strip()
        return SETTINGS | self.given | ({"options": options} if options else {})

    def _refused_options(self, error: psycopg.OperationalError) -> bool:
        """A connection pooler takes no options: then without them, from now on."""
        if self._takes_options and "startup parameter" in str(error):
            self._takes_options = False
            return True
        return False

    def _look_for_pooler(self, connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any], pid: Any) -> None:
        """A pooler (PgBouncer and its like) tells its clients a process number of its own making, and whoever answers
        a query has another. The next statement may be answered by yet another server process, which does not know
        what was prepared in this one."""
        if int(pid) != connection.info.backend_pid:
            self.pooled = True
            connection.prepare_threshold = None

    def connect_plainly(self) -> psycopg.Connection[Any]:
        with mapped(self.url):
            try:
                connection = psycopg.connect(autocommit=True, **self.settings())
            except psycopg.OperationalError as error:
                if not self._refused_options(error):
                    raise
                connection = psycopg.connect(autocommit=True, **self.settings())
            self._look_for_pooler(connection, ask(connection, WHO, seconds=SETTINGS["connect_timeout"]))
            return connection

    # Sync

    def run(self, make: Callable[[], Operation[T]]) -> T:
        with self.link() as link:
            return run(make, link)

    @contextmanager
    def link(self) -> Iterator[SyncLink]:
        self._after_fork()
        with self._places:
            link = next((one for one in iter(self._pop, None) if usable(one.connection)), None)
            link = link or SyncLink(self.connect_plainly())
            try:
                yield link
            finally:
                if idle(link.connection):
                    self._idle.append(link)
                else:
                    link.connection.close()

    def _pop(self) -> SyncLink | None:
        try:
            return self._idle.pop()
        except IndexError:
            return None

    def run_on(self, connection: Any, make: Callable[[], Operation[T]]) -> T:
        with borrow(connection) as link:
            drive(self.home.check(link.driver), link)
            return drive(make(), link) if link.begun else run(make, link)

    # Async

    async def arun(self, make: Callable[[], Operation[T]]) -> T:
        self._after_fork()
        pool = self._loops.get(loop := asyncio.get_running_loop())
        if pool is None:
            pool = self._loops[loop] = _LoopPool(self.size)
        async with pool.places:
            link = None
            while pool.idle and link is None:
                candidate = pool.idle.pop()
                link = candidate if usable(candidate.connection) else None
            link = link or await self._aconnect()
            try:
                return await arun(make, link)
            finally:
                if idle(link.connection):
                    pool.idle.append(link)
                else:
                    await link.connection.close()

    async def _aconnect(self) -> AsyncLink:
        with mapped(self.url):
            try:
                connection = await psycopg.AsyncConnection.connect(autocommit=True, **self.settings())
            except psycopg.OperationalError as error:
                if not self._refused_options(error):
                    raise
                connection = await psycopg.AsyncConnection.connect(autocommit=True, **self.settings())
            row = await (await connection.execute(WHO)).fetchone()
            self._look_for_pooler(connection, row and row[0])
            return AsyncLink(connection)

    async def arun_on(self, connection: Any, make: Callable[[], Operation[T]]) -> T:
        async with borrow_async(connection) as link:
            await adrive(self.home.check(link.driver), link)
            return await adrive(make(), link) if link.begun else await arun(make, link)

    def is_transient(self, error: BaseException) -> bool:
        return isinstance(error, (*TRANSIENT, Transient))

    # Ending

    def close(self) -> None:
        self._after_fork()
        self.blocks.close()
        while (link := self._pop()) is not None:
            link.connection.close()

    async def aclose_loop(self) -> None:
        """What belongs to the running event loop, which is about to end."""
        await self.blocks.aclose_loop()
        pool = self._loops.pop(asyncio.get_running_loop(), None)
        for link in pool.idle if pool else ():
            await link.connection.close()

    async def aclose(self) -> None:
        self.close()
        await self.aclose_loop()

    def _after_fork(self) -> None:
        """The parent's sockets are the parent's: forgotten here, never closed, since closing would end them there."""
        if self._pid != os.getpid():
            self._pid = os.getpid()
            _kept_from_collection.extend(self._idle)
            _kept_from_collection.extend(link for pool in self._loops.values() for link in pool.idle)
            self._idle, self._loops = [], weakref.WeakKeyDictionary()
            self._places = threading.BoundedSemaphore(self.size)


class _LoopPool:
    def __init__(self, size: int) -> None:
        self.idle: list[AsyncLink] = []
        self.places = asyncio.Semaphore(size)


_kept_from_collection: list[SyncLink | AsyncLink] = []

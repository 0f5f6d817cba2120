"""PostgreSQL connections: small pools of Windlass, for threads and for each event loop, and connections of the caller.

Each purpose has separate pools, so that waiting calls take no connection from the worker. A forked child starts with
new, empty pools.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, TypeVar

import psycopg

from ...errors import InvalidInput
from ...forks import PerLoop, PerProcess
from ...operation import Operation, Transient, adrive, arun, drive, run
from ..store import Purpose
from ..urls import without_password
from .blocks import TRANSIENT, Blocks, checked, was_undone
from .borrowed import Home, borrow, borrow_async
from .errors import connecting, is_unwilling
from .own import (
    ANSWER_SECONDS,
    AsyncLink,
    OwnAsyncConnection,
    OwnConnection,
    SyncLink,
    aend,
    ask,
    end,
    idle,
    place,
    usable,
)

T = TypeVar("T")

SETTINGS: dict[str, Any] = {
    "application_name": "windlass",
    "connect_timeout": 10,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
}
# So that the server ends an abandoned statement. Settings of the URL take precedence.
GIVEN_UP = "-c idle_in_transaction_session_timeout=60s -c lock_timeout=60s"
# A write of a worker for many jobs waits no longer for the lock of one: the others are written without it.
NOT_HELD_UP = "-c lock_timeout=2s"
# A worker sends the same few statements all the time. A plan that knows the parameters is not worth its planning: for a
# claim that takes a tenth of the server's time.
PLANNED_ONCE = "-c plan_cache_mode=force_generic_plan"
# A generic plan from the time when the queue was empty would read the whole table when it is full. Without sequential
# scans the plan for a small table looks so costly that PostgreSQL would compile it, for a third of a second.
OURS = "-c enable_seqscan=off -c jit=off -c default_transaction_isolation=read\\ committed"
WHO = "SELECT pg_backend_pid() || ' ' || current_setting('default_transaction_isolation')"
# A worker may do all of this at one time: claim, settle, renew, rescue, expire, prune, report, schedule.
WORKER_CONNECTIONS = 8


def read_url(url: str) -> dict[str, Any]:
    given: dict[str, Any] | None = None
    with suppress(psycopg.ProgrammingError):
        given = psycopg.conninfo.conninfo_to_dict(url)
    # libpq's message may show a part of the password: a password that is not escaped is parsed as a port.
    if given is None or not str(given.get("port", 0)).replace(",", "").isdigit():
        raise InvalidInput(
            f"{without_password(url)} cannot be read as a PostgreSQL URL, postgresql://user:password@host:port/name"
            "?option=value; special characters in a name or a password are written as %40 and the like"
        )
    return given


class SyncPool:
    """Connections of one purpose, for all threads. They are opened when needed, up to a limit.

    The pools have neither threads nor tasks, so nothing has to be stopped when an event loop ends.
    """

    def __init__(self, size: int, connect: Callable[[], SyncLink]) -> None:
        self.connect = connect
        self.idle: list[SyncLink] = []
        self._places = threading.BoundedSemaphore(size)

    @contextmanager
    def link(self) -> Iterator[SyncLink]:
        with place(self._places):
            link = next((one for one in iter(self._pop, None) if usable(one.connection)), None)
            link = link or self.connect()
            try:
                yield link
            finally:
                if idle(link.connection):
                    self.idle.append(link)
                else:
                    end(link.connection)
                    if link.connection.unanswered:
                        self.close()  # if one is half open, others are too

    def _pop(self) -> SyncLink | None:
        try:
            return self.idle.pop()
        except IndexError:
            return None

    def close(self) -> None:
        while (link := self._pop()) is not None:
            link.connection.close()


class AsyncPool:
    """`SyncPool`, awaited: of one event loop."""

    def __init__(self, size: int, connect: Callable[[], Awaitable[AsyncLink]]) -> None:
        self.connect = connect
        self.idle: list[AsyncLink] = []
        self._places = asyncio.Semaphore(size)

    async def run(self, make: Callable[[], Operation[T]]) -> T:
        async with self._places:
            link = None
            while self.idle and link is None:
                candidate = self.idle.pop()
                link = candidate if usable(candidate.connection) else None
            link = link or await self.connect()
            try:
                return await arun(make, link)
            finally:
                if idle(link.connection):
                    self.idle.append(link)
                else:
                    await aend(link.connection)
                    if link.connection.unanswered:
                        await self.close()

    async def close(self) -> None:
        while self.idle:
            await self.idle.pop().connection.close()


class PostgresConnections:
    """Connections to one server. A connection of a caller must lead to the same `table`."""

    def __init__(self, url: str, size: int, table: str) -> None:
        self.url, self.size = url, size
        self.answer_seconds = ANSWER_SECONDS
        self.home = Home(table, without_password(url))
        self.given = read_url(url)
        self.pooled = False
        self.blocks = Blocks(url, SETTINGS | self.given, size, self.home, lambda: self.pooled)
        self.transaction, self.atransaction = self.blocks.transaction, self.blocks.atransaction
        self._takes_options = True
        self._pools: PerProcess[dict[Purpose, SyncPool]] = PerProcess(dict)
        self._loop_pools: PerLoop[dict[Purpose, AsyncPool]] = PerLoop(dict)

    def settings(self, purpose: Purpose = Purpose.CALLS) -> dict[str, Any]:
        """The settings of a new connection. Those of the URL take precedence."""
        given = self.given.get("options") or ""
        waits = f"{GIVEN_UP} {NOT_HELD_UP} {PLANNED_ONCE}" if purpose is Purpose.WORKER else GIVEN_UP
        options = f"{waits} {given} {OURS}" if self._takes_options else given
        return SETTINGS | self.given | ({"options": options} if options else {})

    def _refused_options(self, error: psycopg.OperationalError) -> bool:
        """A connection pooler refuses options: then Windlass connects without them from now on."""
        if self._takes_options and "startup parameter" in str(error):
            self._takes_options = False
            return True
        return False

    def _is_strict(self, connection: OwnConnection | OwnAsyncConnection, who: Any) -> bool:
        """Whether the default isolation level is stricter than READ COMMITTED.

        It also detects a pooler. PgBouncer and others report a made-up process number, and the process that answers a
        query has another. The next statement may reach yet another process, which does not have the prepared
        statements of this one."""
        pid, _, level = str(who).partition(" ")
        if int(pid) != connection.info.backend_pid:
            self.pooled = True
            connection.prepare_threshold = None
        return level != "read committed"

    def connect_plainly(self) -> OwnConnection:
        return self._connect().connection

    def _connect(self, purpose: Purpose = Purpose.CALLS) -> SyncLink:
        with connecting(self.url):
            try:
                connection = OwnConnection.connect(autocommit=True, **self.settings(purpose))
            except psycopg.OperationalError as error:
                if not self._refused_options(error):
                    raise
                connection = OwnConnection.connect(autocommit=True, **self.settings(purpose))
            try:
                strict = self._is_strict(connection, ask(connection, WHO, seconds=SETTINGS["connect_timeout"]))
            except BaseException:
                connection.close()
                raise
            return SyncLink(connection, self.answer_seconds, strict)

    # Sync

    def run(self, make: Callable[[], Operation[T]], purpose: Purpose = Purpose.CALLS) -> T:
        with self.link(purpose) as link:
            return run(make, link)

    @contextmanager
    def link(self, purpose: Purpose = Purpose.CALLS) -> Iterator[SyncLink]:
        pools = self._pools.get()
        pool = pools.get(purpose) or pools.setdefault(
            purpose, SyncPool(self._size_for(purpose), partial(self._connect, purpose))
        )
        with pool.link() as link:
            yield link

    def _size_for(self, purpose: Purpose) -> int:
        return WORKER_CONNECTIONS if purpose is Purpose.WORKER else self.size

    def run_on(self, connection: Any, make: Callable[[], Operation[T]]) -> T:
        with checked(connection, self.answer_seconds), borrow(connection) as link:
            if not self.home.knows(link.driver):
                there = drive(self.home.look(), link)
                if not self.home.is_at(there, link.driver):
                    self.home.compare(there, self.run(self.home.look, Purpose.WORKER), link.driver)
            return drive(make(), link) if link.begun else run(make, link)

    # Async

    async def arun(self, make: Callable[[], Operation[T]], purpose: Purpose = Purpose.CALLS) -> T:
        pools = self._loop_pools.get()
        pool = pools.get(purpose)
        if pool is None:
            pool = pools[purpose] = AsyncPool(self._size_for(purpose), partial(self._aconnect, purpose))
        return await pool.run(make)

    async def _aconnect(self, purpose: Purpose) -> AsyncLink:
        with connecting(self.url):
            try:
                connection = await OwnAsyncConnection.connect(autocommit=True, **self.settings(purpose))
            except psycopg.OperationalError as error:
                if not self._refused_options(error):
                    raise
                connection = await OwnAsyncConnection.connect(autocommit=True, **self.settings(purpose))
            try:
                row = await (await connection.execute(WHO)).fetchone()
                strict = self._is_strict(connection, row and row[0])
            except BaseException:
                await connection.close()
                raise
            return AsyncLink(connection, self.answer_seconds, strict)

    async def arun_on(self, connection: Any, make: Callable[[], Operation[T]]) -> T:
        with checked(connection, self.answer_seconds):
            async with borrow_async(connection) as link:
                if not self.home.knows(link.driver):
                    there = await adrive(self.home.look(), link)
                    if not self.home.is_at(there, link.driver):
                        self.home.compare(there, await self.arun(self.home.look, Purpose.WORKER), link.driver)
                return await adrive(make(), link) if link.begun else await arun(make, link)

    def is_transient(self, error: BaseException) -> bool:
        return isinstance(error, (*TRANSIENT, Transient))

    was_undone = staticmethod(was_undone)
    is_unwilling = staticmethod(is_unwilling)

    # Ending

    def close(self) -> None:
        self.blocks.close()
        for pool in list(self._pools.get().values()):
            pool.close()

    async def aclose_loop(self) -> None:
        """Close the connections of the running event loop, which is about to end."""
        await self.blocks.aclose_loop()
        for pool in (self._loop_pools.pop() or {}).values():
            await pool.close()

    async def aclose(self) -> None:
        self.close()
        await self.aclose_loop()

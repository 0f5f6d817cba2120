"""Operations on the caller's connection.

Windlass changes nothing in its session: names are qualified, the cursor and its row factory are new. Errors are raised
as they are, since the transaction belongs to the caller, who decides how to continue. Without a transaction, in
autocommit mode, Windlass runs one operation as one transaction.
"""

from __future__ import annotations

import weakref
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, TypeAlias

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from ...errors import InvalidInput
from ...operation import Begin, Commit, Copy, Current, Operation, Rollback, Rows, Statement, Step
from ..sql import sqlalchemy
from ..sql.isolation import BEGIN, LEVEL, refuse_stricter
from ..sql.query import Query

CONTROL = {Begin: BEGIN, Commit: "COMMIT", Rollback: "ROLLBACK"}


@contextmanager
def borrow(connection: Any) -> Iterator[BorrowedPsycopg | sqlalchemy.SqlalchemyLink]:
    if isinstance(connection, psycopg.Connection):
        link: BorrowedPsycopg | sqlalchemy.SqlalchemyLink = BorrowedPsycopg(connection)
    elif sqlalchemy.is_sync(connection):
        link = sqlalchemy.link(connection, "postgresql")
    else:
        raise refusal(connection, is_async=False)
    try:
        yield link
    finally:
        if link.ours:  # interrupted: a connection in autocommit mode is given back in no transaction
            link.execute(Rollback())


@asynccontextmanager
async def borrow_async(connection: Any) -> AsyncIterator[AsyncLink]:
    if isinstance(connection, psycopg.AsyncConnection):
        link: AsyncLink = BorrowedAsyncPsycopg(connection)
    elif sqlalchemy.is_async(connection):
        link = await sqlalchemy.alink(connection, "postgresql")
    elif _is_asyncpg(connection):
        link = BorrowedAsyncpg(connection)
    else:
        raise refusal(connection, is_async=True)
    try:
        yield link
    finally:
        if link.ours:
            await link.execute(Rollback())


def _is_asyncpg(connection: Any) -> bool:
    return type(connection).__module__.split(".")[0] == "asyncpg" and hasattr(connection, "is_in_transaction")


def refusal(connection: Any, *, is_async: bool) -> InvalidInput:
    kind = f"{type(connection).__module__}.{type(connection).__qualname__}"
    other_way = (
        isinstance(connection, psycopg.Connection) or sqlalchemy.is_sync(connection)
        if is_async
        else isinstance(connection, psycopg.AsyncConnection)
        or sqlalchemy.is_async(connection)
        or _is_asyncpg(connection)
    )
    if other_way:
        twin = "the method without the a- in front (enqueue, not aenqueue)" if is_async else "the a- twin (aenqueue)"
        return InvalidInput(f"{kind} is {'a sync' if is_async else 'an async'} connection: use {twin}")
    return InvalidInput(
        "connection= takes a connection of psycopg, asyncpg (async) or SQLAlchemy where the queue is in PostgreSQL, "
        f"not {kind}"
    )


class Home:
    """The database of the queue. A connection to another database is refused before its transaction could fail, or take
    the job to where no worker looks.

    A database is identified by its number, the number of its table, and the start time of its server. These are the
    same through a pooler, a socket or another name, and different in a copy. The database of the queue is read again
    before another is refused: its server may have been restarted.
    """

    LOOK = Query(
        "home",
        """SELECT CASE WHEN to_regclass(:table::text) IS NOT NULL THEN concat_ws('/',
            (SELECT oid FROM pg_database WHERE datname = current_database()), to_regclass(:table::text)::oid,
            extract(epoch FROM pg_postmaster_start_time())) END""",
    )

    def __init__(self, table: str, shown_url: str) -> None:
        self.table, self.shown_url = table, shown_url
        self._ours: str | None = None
        self._known: weakref.WeakSet[Any] = weakref.WeakSet()

    def knows(self, driver: Any) -> bool:
        """Each connection of the driver is checked once, however often a pool lends it. Those of blocks are known."""
        return driver in self._known or getattr(driver, "home", None) is self

    def look(self) -> Operation[str | None]:
        rows = yield Statement(self.LOOK, {"table": self.table}, alone=True)
        return rows[0][0]  # type: ignore[no-any-return]

    def is_at(self, there: str | None, driver: Any) -> bool:
        """Whether it is the database where we last saw the queue."""
        if there is None:
            raise InvalidInput(
                f"the database of this connection has no table {self.table}: is it the one that the queue lives in, "
                f"{self.shown_url}, and was app.migrate() run there?"
            )
        if there == self._ours:
            with suppress(TypeError):  # connections that allow no weak reference are checked each time
                self._known.add(driver)
        return there == self._ours

    def compare(self, there: str | None, ours: str | None, driver: Any) -> None:
        self._ours = ours
        if not self.is_at(there, driver):
            raise InvalidInput(
                f"this connection leads to another database than the one that the queue lives in, {self.shown_url}: "
                "both have a queue, and the job would go to the wrong one. Pass a connection to that database"
            )


class BorrowedPsycopg:
    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self.driver, self.begun, self.ours = connection, _begun(connection), False
        self.cursor = connection.cursor(row_factory=tuple_row, binary=True)

    def execute(self, step: Step) -> Rows:
        match step:
            case Statement(query=query, parameters=parameters):
                for statement in query.binary if parameters else query.statements:
                    self.cursor.execute(statement, parameters or None)
                return self._rows()
            case Copy(fallback=fallback):
                return self.execute(fallback())
            case Current() if self.begun:
                refuse_stricter(self.execute(LEVEL), step)
            case Begin() | Commit() | Rollback():
                self.cursor.execute(CONTROL[type(step)])
                self.ours = isinstance(step, Begin)
        return ()

    def _rows(self) -> Rows:
        """In a pipeline, it is known only afterwards whether there are any."""
        try:
            return self.cursor.fetchall()
        except psycopg.ProgrammingError:
            if self.cursor.pgresult is None or self.cursor.description:
                raise
            return ()


class BorrowedAsyncPsycopg:
    def __init__(self, connection: psycopg.AsyncConnection[Any]) -> None:
        self.driver, self.begun, self.ours = connection, _begun(connection), False
        self.cursor = connection.cursor(row_factory=tuple_row, binary=True)

    async def execute(self, step: Step) -> Rows:
        match step:
            case Statement(query=query, parameters=parameters):
                for statement in query.binary if parameters else query.statements:
                    await self.cursor.execute(statement, parameters or None)
                return await self._rows()
            case Copy(fallback=fallback):
                return await self.execute(fallback())
            case Current() if self.begun:
                refuse_stricter(await self.execute(LEVEL), step)
            case Begin() | Commit() | Rollback():
                await self.cursor.execute(CONTROL[type(step)])
                self.ours = isinstance(step, Begin)
        return ()

    async def _rows(self) -> Rows:
        try:
            return await self.cursor.fetchall()
        except psycopg.ProgrammingError:
            if self.cursor.pgresult is None or self.cursor.description:
                raise
            return ()


class BorrowedAsyncpg:
    def __init__(self, connection: Any) -> None:
        self.connection, self.begun, self.ours = connection, connection.is_in_transaction(), False
        self.driver = getattr(connection, "_con", connection)  # a pool lends it in a wrapper

    async def execute(self, step: Step) -> Rows:
        match step:
            case Statement(query=query, parameters=parameters):
                rows: Rows = ()
                for statement, names in query.numbered:
                    rows = await self.connection.fetch(statement, *(parameters[name] for name in names))
                return [tuple(row.values()) for row in rows]
            case Copy(fallback=fallback):
                return await self.execute(fallback())
            case Current() if self.begun:
                refuse_stricter(await self.execute(LEVEL), step)
            case Begin() | Commit() | Rollback():
                await self.connection.execute(CONTROL[type(step)])
                self.ours = isinstance(step, Begin)
        return ()


AsyncLink: TypeAlias = BorrowedAsyncPsycopg | BorrowedAsyncpg | sqlalchemy.AsyncSqlalchemyLink


def _begun(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> bool:
    """psycopg begins by itself unless it is in autocommit mode."""
    return not connection.autocommit or connection.info.transaction_status != TransactionStatus.IDLE

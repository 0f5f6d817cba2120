"""The caller's own connection, as something that operations can be driven on.

Nothing of its session is changed: names are qualified, the cursor and its row factory are ours. What it raises is
passed on as it is, since the transaction, and what to do about it, is the caller's.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from ...errors import InvalidInput
from ...operation import AsyncConnection, Begin, Commit, Connection, Copy, Rollback, Rows, Sleep, Statement, Step
from ..sql import sqlalchemy

CONTROL = {Begin: "BEGIN", Commit: "COMMIT", Rollback: "ROLLBACK"}


@contextmanager
def borrow(connection: Any) -> Iterator[tuple[Connection, bool]]:
    """(what to drive on, whether the caller has a transaction)."""
    if isinstance(connection, psycopg.Connection):
        yield BorrowedPsycopg(connection), _begun(connection)
    elif sqlalchemy.is_sync(connection):
        yield sqlalchemy.link(connection), True
    else:
        raise refusal(connection, is_async=False)


@asynccontextmanager
async def borrow_async(connection: Any) -> AsyncIterator[tuple[AsyncConnection, bool]]:
    if isinstance(connection, psycopg.AsyncConnection):
        yield BorrowedAsyncPsycopg(connection), _begun(connection)
    elif sqlalchemy.is_async(connection):
        yield await sqlalchemy.alink(connection), True
    elif _is_asyncpg(connection):
        yield BorrowedAsyncpg(connection), connection.is_in_transaction()
    else:
        raise refusal(connection, is_async=True)


def _begun(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> bool:
    """psycopg begins by itself unless it is in autocommit mode."""
    return not connection.autocommit or connection.info.transaction_status != TransactionStatus.IDLE


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
    return InvalidInput(f"{kind} is no connection that a job can be enqueued on in PostgreSQL")


class BorrowedPsycopg:
    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self.cursor = connection.cursor(row_factory=tuple_row, binary=True)

    def execute(self, step: Step) -> Rows:
        match step:
            case Statement(query=query, parameters=parameters):
                for statement in query.binary if parameters else query.statements:
                    self.cursor.execute(statement, parameters or None)
                return self.cursor.fetchall() if self.cursor.description else ()
            case Copy(fallback=fallback):
                return self.execute(fallback())
            case Begin() | Commit() | Rollback():
                self.cursor.execute(CONTROL[type(step)])
        return ()


class BorrowedAsyncPsycopg:
    def __init__(self, connection: psycopg.AsyncConnection[Any]) -> None:
        self.cursor = connection.cursor(row_factory=tuple_row, binary=True)

    async def execute(self, step: Step) -> Rows:
        match step:
            case Statement(query=query, parameters=parameters):
                for statement in query.binary if parameters else query.statements:
                    await self.cursor.execute(statement, parameters or None)
                return await self.cursor.fetchall() if self.cursor.description else ()
            case Copy(fallback=fallback):
                return await self.execute(fallback())
            case Begin() | Commit() | Rollback():
                await self.cursor.execute(CONTROL[type(step)])
        return ()


class BorrowedAsyncpg:
    def __init__(self, connection: Any) -> None:
        self.connection = connection

    async def execute(self, step: Step) -> Rows:
        match step:
            case Statement(query=query, parameters=parameters):
                rows: Rows = ()
                for statement, names in query.numbered:
                    rows = await self.connection.fetch(statement, *(parameters[name] for name in names))
                return [tuple(row.values()) for row in rows]
            case Copy(fallback=fallback):
                return await self.execute(fallback())
            case Begin() | Commit() | Rollback():
                await self.connection.execute(CONTROL[type(step)])
            case Sleep():
                pass
        return ()

"""Operations on the caller's connection to the file of the queue.

Windlass changes nothing in it. Errors are raised as they are, since the transaction belongs to the caller, who decides
how to continue. Without a transaction, in autocommit mode, Windlass runs one operation as one transaction.
"""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from ...errors import InvalidInput, SchemaMismatch
from ...operation import Rollback
from ..sql import sqlalchemy
from .link import SqliteLink


@contextmanager
def borrow(connection: Any, kind: type[Borrowed] | None = None) -> Iterator[Borrowed | sqlalchemy.SqlalchemyLink]:
    if sqlalchemy.is_sync(connection):
        alchemy = sqlalchemy.link(connection, "sqlite")
        try:
            with explained():
                yield alchemy
        finally:
            if alchemy.ours:  # interrupted: a connection in autocommit mode is given back in no transaction
                alchemy.execute(Rollback())
    elif isinstance(connection, sqlite3.Connection):
        link = (kind or Borrowed)(connection)
        text_factory, connection.text_factory = connection.text_factory, str
        try:
            with explained():
                yield link
        finally:
            connection.text_factory = text_factory
            if not link.begun:
                link.execute(Rollback())
    else:
        raise refusal(connection, is_async=False)


@asynccontextmanager
async def borrow_async(connection: Any) -> AsyncIterator[sqlalchemy.AsyncSqlalchemyLink]:
    if not sqlalchemy.is_async(connection):
        raise refusal(connection, is_async=True)
    link = await sqlalchemy.alink(connection, "sqlite")
    try:
        with explained():
            yield link
    finally:
        if link.ours:
            await link.execute(Rollback())


class Borrowed(SqliteLink):
    def __init__(self, connection: sqlite3.Connection) -> None:
        super().__init__(connection)
        self.begun = begun(connection)


def begun(connection: sqlite3.Connection) -> bool:
    """sqlite3 begins by itself before it writes, unless the caller has chosen autocommit."""
    if connection.in_transaction:
        return True
    autocommit = getattr(connection, "autocommit", -1)  # from Python 3.12 on; -1 means the old rules
    return autocommit is False or (autocommit != 1 and connection.isolation_level is not None)


@contextmanager
def explained() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        text = str(error) if isinstance(getattr(error, "orig", error), sqlite3.OperationalError) else ""
        if "locked" in text:
            error.add_note(
                "A transaction that has read before it writes is refused at once when someone else is writing: "
                "begin it with BEGIN IMMEDIATE."
            )
        if "no such table" in text or "no such column" in text:
            raise SchemaMismatch(f"{text}: run app.migrate(), or windlass migrate") from error
        raise


def refusal(connection: Any, *, is_async: bool) -> InvalidInput:
    kind = f"{type(connection).__module__}.{type(connection).__qualname__}"
    if sqlalchemy.is_async(connection) and not is_async:
        return InvalidInput(f"{kind} is an async connection: use the a- twin (aenqueue)")
    if sqlalchemy.is_sync(connection) and is_async:
        return InvalidInput(
            f"{kind} is a sync connection: use the method without the a- in front (enqueue, not aenqueue)"
        )
    return InvalidInput(
        f"connection= takes a connection of sqlite3 or SQLAlchemy where the queue is in SQLite, not {kind}"
    )

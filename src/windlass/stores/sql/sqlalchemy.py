"""Operations on SQLAlchemy's connections and sessions, sync and async.

Statements go through `exec_driver_sql` in the parameter style of the driver. So they are part of the transaction that
SQLAlchemy has begun, or begins now, and its events and its echo see them.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from ...errors import InvalidInput
from ...operation import Begin, Commit, Copy, Current, Rollback, Rows, Statement, Step
from .isolation import BEGIN, LEVEL, refuse_stricter
from .values import bound

_NUMBERED = {"asyncpg"}
_NAMED = {"pysqlite", "aiosqlite"}
_PYFORMAT = {"psycopg", "psycopg2"}


def _kinds(module: str, *names: str) -> tuple[type, ...]:
    """Classes of a module, if it is imported. Without the import, no object can be of such a class."""
    loaded = sys.modules.get(module)
    return tuple(getattr(loaded, name) for name in names) if loaded else ()


def _is(connection: Any, kinds: tuple[type, ...]) -> bool:
    return isinstance(connection, kinds)


def is_sync(connection: Any) -> bool:
    kinds = _kinds("sqlalchemy.engine", "Connection") + _kinds("sqlalchemy.orm", "Session", "scoped_session")
    return isinstance(connection, kinds)


def is_async(connection: Any) -> bool:
    kinds = _kinds("sqlalchemy.ext.asyncio", "AsyncConnection", "AsyncSession", "async_scoped_session")
    return isinstance(connection, kinds)


def link(connection: Any, dialect: str) -> SqlalchemyLink:
    if _is(connection, _kinds("sqlalchemy.orm", "Session", "scoped_session")):
        connection = connection.connection()
    _check(connection, dialect)
    return SqlalchemyLink(connection)


async def alink(connection: Any, dialect: str) -> AsyncSqlalchemyLink:
    if _is(connection, _kinds("sqlalchemy.ext.asyncio", "AsyncSession", "async_scoped_session")):
        connection = await connection.connection()
    _check(connection, dialect)
    return AsyncSqlalchemyLink(connection)


def _check(connection: Any, dialect: str) -> None:
    if connection.dialect.name != dialect:
        raise InvalidInput(f"this is a connection to {connection.dialect.name}; the queue lives in {dialect}")
    if connection.dialect.driver not in _NUMBERED | _NAMED | _PYFORMAT:
        known = ", ".join(sorted(_NUMBERED | _NAMED | _PYFORMAT))
        raise InvalidInput(
            f"SQLAlchemy's driver {connection.dialect.driver!r} is not supported here; these are: {known}"
        )


def _begun(connection: Any) -> bool:
    """SQLAlchemy begins by itself, unless autocommit was chosen for the connection or for its engine."""
    chosen = connection.get_execution_options().get("isolation_level")
    chosen = chosen or getattr(connection.dialect, "_on_connect_isolation_level", None)
    return bool(chosen != "AUTOCOMMIT")


def _rendered(driver: str, statement: Statement) -> list[tuple[str, Any]]:
    if driver in _NAMED:
        return list(bound(statement))
    query = statement.query
    batches: list[Mapping[str, Any]] = [statement.parameters] if statement.each is None else list(statement.each)
    if driver in _NUMBERED:
        return [(text, tuple(one[name] for name in names)) for one in batches for text, names in query.numbered]
    convert = _plain if driver == "psycopg2" else lambda value: value
    return [(text, {name: convert(value) for name, value in one.items()}) for one in batches for text in query.pyformat]


def _plain(value: Any) -> Any:
    """psycopg2 adapts UUIDs only after a global registration, which belongs to the application."""
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return str(value) if isinstance(value, UUID) else value


class SqlalchemyLink:
    """`begun`: the caller has a transaction; `ours`: one of ours is open; `driver`: the connection underneath."""

    def __init__(self, connection: Any) -> None:
        self.connection, self.begun, self.ours = connection, _begun(connection), False
        self.driver = connection.connection.driver_connection

    def execute(self, step: Step) -> Rows:
        rows: list[Any] = []
        if isinstance(step, Current):
            if self.begun and self.connection.dialect.name == "postgresql":
                refuse_stricter(self.execute(LEVEL), step)
            return rows
        for text, parameters in _texts(self.connection, step):
            result = self.connection.exec_driver_sql(text, parameters or None)
            rows += [tuple(row) for row in result] if result.returns_rows else []
        self.ours = _is_ours(step, self.ours)
        return rows


class AsyncSqlalchemyLink:
    def __init__(self, connection: Any) -> None:
        self.connection, self.begun, self.ours = connection, _begun(connection.sync_connection), False
        self.driver = connection.sync_connection.connection.driver_connection

    async def execute(self, step: Step) -> Rows:
        rows: list[Any] = []
        if isinstance(step, Current):
            if self.begun and self.connection.dialect.name == "postgresql":
                refuse_stricter(await self.execute(LEVEL), step)
            return rows
        for text, parameters in _texts(self.connection, step):
            result = await self.connection.exec_driver_sql(text, parameters or None)
            rows += [tuple(row) for row in result] if result.returns_rows else []
        self.ours = _is_ours(step, self.ours)
        return rows


def _texts(connection: Any, step: Step) -> list[tuple[str, Any]]:
    match step:
        case Statement():
            return _rendered(connection.dialect.driver, step)
        case Copy(fallback=fallback):
            return _rendered(connection.dialect.driver, fallback())
        case Begin():
            return [("BEGIN IMMEDIATE" if connection.dialect.name == "sqlite" else BEGIN, None)]
        case Commit() | Rollback():
            return [(type(step).__name__.upper(), None)]
    return []


def _is_ours(step: Step, before: bool) -> bool:
    return isinstance(step, Begin) or (before and not isinstance(step, (Commit, Rollback)))

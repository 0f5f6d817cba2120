"""Connections that are given to handlers: on the queue's own file, in a transaction that holds the write lock."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeVar

from ...operation import Begin, Commit
from .forking import gate
from .own import BUSY_SECONDS, OwnLink, mapped

T = TypeVar("T")
Values = Sequence[Any] | dict[str, Any]


class BlockConnection:
    """A `sqlite3.Connection` for the length of a block: whoever opened the block ends its transaction."""

    def __init__(self, raw: sqlite3.Connection) -> None:
        self.raw = raw

    def execute(self, sql: str, values: Values = ()) -> sqlite3.Cursor:
        return self.raw.execute(sql, values)

    def executemany(self, sql: str, values: Iterable[Values]) -> sqlite3.Cursor:
        return self.raw.executemany(sql, values)

    def fetchall(self, sql: str, values: Values = ()) -> list[Any]:
        return self.raw.execute(sql, values).fetchall()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.raw, name)


class AsyncBlockConnection:
    """The same, awaited: it has a thread of its own, so that the event loop never waits for the disk."""

    def __init__(self, raw: sqlite3.Connection, thread: ThreadPoolExecutor) -> None:
        self.raw, self._thread = raw, thread

    async def call(self, function: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, lambda: function(*arguments))

    async def execute(self, sql: str, values: Values = ()) -> AsyncCursor:
        return AsyncCursor(self, await self.call(self.raw.execute, sql, values))

    async def executemany(self, sql: str, values: Iterable[Values]) -> AsyncCursor:
        return AsyncCursor(self, await self.call(self.raw.executemany, sql, values))

    async def fetchall(self, sql: str, values: Values = ()) -> list[Any]:
        return await self.call(lambda: self.raw.execute(sql, values).fetchall())


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


def finish(connection: sqlite3.Connection, path: str, *, commit: bool) -> None:
    with gate.inside(), mapped(path):
        try:
            if commit:
                OwnLink(connection, path, BUSY_SECONDS).execute(Commit())
        finally:
            if connection.in_transaction:
                connection.rollback()
            connection.close()


@contextmanager
def transaction(open_connection: Callable[[], sqlite3.Connection], path: str) -> Iterator[BlockConnection]:
    connection = open_connection()
    commit = False
    try:
        begin(connection, path)
        yield BlockConnection(connection)
        commit = True
    finally:
        finish(connection, path, commit=commit)


@asynccontextmanager
async def atransaction(
    open_connection: Callable[[], sqlite3.Connection], path: str
) -> AsyncIterator[AsyncBlockConnection]:
    with ThreadPoolExecutor(1, thread_name_prefix="windlass-block") as thread:
        loop = asyncio.get_running_loop()
        connection = await loop.run_in_executor(thread, open_connection)
        commit = False
        try:
            await loop.run_in_executor(thread, begin, connection, path)
            yield AsyncBlockConnection(connection, thread)
            commit = True
        finally:
            await loop.run_in_executor(thread, lambda: finish(connection, path, commit=commit))

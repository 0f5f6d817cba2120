"""Blocks in async handlers: the statements run in a thread, so that the event loop never waits for the disk."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeVar

from .blocks import BlockConnection, Values, begin, finish, inside

T = TypeVar("T")
THREAD_NAME = "windlass-block"


class AsyncBlockConnection:
    """A `BlockConnection`, awaited. One thread runs its statements, in the order of the calls."""

    def __init__(self, block: BlockConnection, thread: ThreadPoolExecutor) -> None:
        self.block, self._thread = block, thread

    async def call(self, function: Callable[..., T], *arguments: Any) -> T:
        self.block.check_unended()
        return await asyncio.wrap_future(self._thread.submit(function, *arguments))

    async def until_idle(self) -> None:
        """Wait for the statements of tasks that the handler has not awaited."""
        await asyncio.wrap_future(self._thread.submit(lambda: None))

    async def execute(self, sql: str, values: Values = ()) -> AsyncCursor:
        return AsyncCursor(self, await self.call(self.block.execute, sql, values))

    async def executemany(self, sql: str, values: Iterable[Values]) -> AsyncCursor:
        return AsyncCursor(self, await self.call(self.block.executemany, sql, values))

    async def fetchall(self, sql: str, values: Values = ()) -> list[Any]:
        return await self.call(self.block.fetchall, sql, values)


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


@asynccontextmanager
async def atransaction(
    open_connection: Callable[[], sqlite3.Connection], path: str, address: str
) -> AsyncIterator[AsyncBlockConnection]:
    thread = ThreadPoolExecutor(1, thread_name_prefix=THREAD_NAME)
    try:
        block = BlockConnection(await _opened(thread.submit(open_connection)), address)
        connection = AsyncBlockConnection(block, thread)
        try:
            await connection.call(begin, block, path)
            with inside(block):
                yield connection
            await connection.until_idle()
        except BaseException:
            # A cancelled statement still runs in its thread. Another thread can interrupt it.
            await _to_its_end(_in_new_thread(partial(finish, block, path, commit=False)))
            raise
        await _to_its_end(thread.submit(partial(finish, block, path, commit=True)))
    finally:
        thread.shutdown(wait=False)  # to wait here would stop the event loop


async def _opened(opening: Future[sqlite3.Connection]) -> sqlite3.Connection:
    try:
        return await asyncio.wrap_future(opening)
    except asyncio.CancelledError:
        opening.add_done_callback(_close_if_opened)
        raise


def _close_if_opened(opening: Future[sqlite3.Connection]) -> None:
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()


def _in_new_thread(function: Callable[[], T]) -> Future[T]:
    thread = ThreadPoolExecutor(1, thread_name_prefix=f"{THREAD_NAME}-end")
    try:
        return thread.submit(function)
    finally:
        thread.shutdown(wait=False)


async def _to_its_end(finishing: Future[None]) -> None:
    """A cancellation is raised after the end: then the block has released its lock, if its statements have ended."""
    future = asyncio.wrap_future(finishing)
    cancelled: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled from future.exception()
    future.result()

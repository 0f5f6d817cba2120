"""Connections that are given to handlers: plain ones, with the URL's own settings, in a transaction."""

from __future__ import annotations

import asyncio
import os
import weakref
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import psycopg

from .errors import mapped

TRANSIENT = (psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected)
KEPT = 10


class Blocks:
    """A few connections are kept for the next; those of an event loop belong to it."""

    def __init__(self, url: str, given: dict[str, Any]) -> None:
        self.url, self.given = url, given
        self._pid = os.getpid()
        self._kept: list[psycopg.Connection[Any]] = []
        self._loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, list[psycopg.AsyncConnection[Any]]]
        self._loops = weakref.WeakKeyDictionary()

    @contextmanager
    def transaction(self) -> Iterator[psycopg.Connection[Any]]:
        self._after_fork()
        connection = self._kept.pop() if self._kept else None
        if connection is None or not _idle(connection):
            with mapped(self.url):
                connection = psycopg.connect(autocommit=True, **self.given)
        try:
            with connection.transaction():
                yield connection
        finally:
            if _idle(connection) and len(self._kept) < KEPT:
                self._kept.append(connection)
            else:
                connection.close()

    @asynccontextmanager
    async def atransaction(self) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
        self._after_fork()
        kept = self._loops.setdefault(asyncio.get_running_loop(), [])
        connection = kept.pop() if kept else None
        if connection is None or not _idle(connection):
            with mapped(self.url):
                connection = await psycopg.AsyncConnection.connect(autocommit=True, **self.given)
        try:
            async with connection.transaction():
                yield connection
        finally:
            if _idle(connection) and len(kept) < KEPT:
                kept.append(connection)
            else:
                await connection.close()

    def close(self) -> None:
        self._after_fork()
        while self._kept:
            self._kept.pop().close()

    async def aclose_loop(self) -> None:
        for connection in self._loops.pop(asyncio.get_running_loop(), ()):
            await connection.close()

    def _after_fork(self) -> None:
        if self._pid != os.getpid():
            self._pid = os.getpid()
            _kept_from_collection.append((self._kept, self._loops))  # the parent's: neither used nor closed here
            self._kept, self._loops = [], weakref.WeakKeyDictionary()


def _idle(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> bool:
    return bool(connection.pgconn.transaction_status == psycopg.pq.TransactionStatus.IDLE)


_kept_from_collection: list[Any] = []

"""Connections of the databases' own drivers."""

from __future__ import annotations

import sqlite3
from typing import Any

import asyncpg
import psycopg
from pymongo import AsyncMongoClient, MongoClient

from tests.caller_transactions.lender import Lender


class Psycopg(Lender):
    store, is_async = "postgres", False

    async def open(self) -> None:
        self.connection = psycopg.connect(self.url)

    async def close(self) -> None:
        self.connection.close()

    async def commit(self) -> None:
        self.connection.commit()

    async def rollback(self) -> None:
        self.connection.rollback()

    async def execute(self, text: str) -> None:
        self.connection.execute(text)


class PsycopgBegun(Psycopg):
    """In autocommit mode, with a transaction that was begun by hand."""

    async def open(self) -> None:
        self.connection = psycopg.connect(self.url, autocommit=True)

    async def begin(self) -> None:
        await self.execute("BEGIN")


class AsyncPsycopg(Lender):
    store, is_async = "postgres", True

    async def open(self) -> None:
        self.connection = await psycopg.AsyncConnection.connect(self.url)

    async def close(self) -> None:
        await self.connection.close()

    async def commit(self) -> None:
        await self.connection.commit()

    async def rollback(self) -> None:
        await self.connection.rollback()

    async def execute(self, text: str) -> None:
        await self.connection.execute(text)


class AsyncPsycopgBegun(AsyncPsycopg):
    async def open(self) -> None:
        self.connection = await psycopg.AsyncConnection.connect(self.url, autocommit=True)

    async def begin(self) -> None:
        await self.execute("BEGIN")


class Asyncpg(Lender):
    store, is_async = "postgres", True

    async def open(self) -> None:
        self.connection = await asyncpg.connect(self.url)

    async def close(self) -> None:
        await self.connection.close()

    async def begin(self) -> None:
        self._transaction = self.connection.transaction()
        await self._transaction.start()

    async def commit(self) -> None:
        await self._transaction.commit()

    async def rollback(self) -> None:
        await self._transaction.rollback()

    async def execute(self, text: str) -> None:
        await self.connection.execute(text)


class AsyncpgPooled(Asyncpg):
    """What a pool lends is no connection but stands for one."""

    async def open(self) -> None:
        self._pool = await asyncpg.create_pool(self.url, min_size=1, max_size=1)
        self.connection = await self._pool.acquire()

    async def close(self) -> None:
        await self._pool.release(self.connection)
        await self._pool.close()


class Sqlite(Lender):
    store, is_async = "sqlite", False
    options: dict[str, Any] = {}  # noqa: RUF012

    async def open(self) -> None:
        self.connection = sqlite3.connect(self.url.removeprefix("sqlite:///"), **self.options)

    async def close(self) -> None:
        self.connection.close()

    async def commit(self) -> None:
        self.connection.commit()

    async def rollback(self) -> None:
        self.connection.rollback()

    async def execute(self, text: str) -> None:
        self.connection.execute(text)


class SqliteBegun(Sqlite):
    """In autocommit mode, with a transaction that was begun by hand."""

    options = {"isolation_level": None}  # noqa: RUF012

    async def begin(self) -> None:
        await self.execute("BEGIN")


class SqliteByAttribute(Sqlite):
    """As Python 3.12 would have it: always in a transaction."""

    options = {"autocommit": False}  # noqa: RUF012


class Pymongo(Lender):
    store, is_async, has_savepoints = "mongodb", False, False

    async def open(self) -> None:
        self._client: MongoClient[Any] = MongoClient(self.url)
        self.connection = self._client.start_session()

    async def close(self) -> None:
        self.connection.end_session()
        self._client.close()

    async def begin(self) -> None:
        self.connection.start_transaction()

    async def commit(self) -> None:
        self.connection.commit_transaction()

    async def rollback(self) -> None:
        self.connection.abort_transaction()

    async def write(self, text: str) -> None:
        self._client.get_default_database()[self.table].insert_one({"text": text}, session=self.connection)


class AsyncPymongo(Lender):
    store, is_async, has_savepoints = "mongodb", True, False

    async def open(self) -> None:
        self._client: AsyncMongoClient[Any] = AsyncMongoClient(self.url)
        self.connection = self._client.start_session()

    async def close(self) -> None:
        await self.connection.end_session()
        await self._client.close()

    async def begin(self) -> None:
        await self.connection.start_transaction()

    async def commit(self) -> None:
        await self.connection.commit_transaction()

    async def rollback(self) -> None:
        await self.connection.abort_transaction()

    async def write(self, text: str) -> None:
        await self._client.get_default_database()[self.table].insert_one({"text": text}, session=self.connection)

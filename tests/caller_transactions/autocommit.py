"""The same connections without a transaction: each statement is one."""

from __future__ import annotations

import sys
from typing import Any

import psycopg

from tests.caller_transactions import alchemy, drivers
from tests.caller_transactions.lender import Lender


class Psycopg(drivers.Psycopg):
    async def open(self) -> None:
        self.connection = psycopg.connect(self.url, autocommit=True)


class AsyncPsycopg(drivers.AsyncPsycopg):
    async def open(self) -> None:
        self.connection = await psycopg.AsyncConnection.connect(self.url, autocommit=True)


class Sqlite(drivers.Sqlite):
    options = {"isolation_level": None}  # noqa: RUF012


class SqliteByAttribute(drivers.Sqlite):
    options = {"autocommit": True}  # noqa: RUF012


class AlchemyByOption(alchemy.Alchemy):
    def _borrow(self) -> Any:
        return self.engine.connect().execution_options(isolation_level="AUTOCOMMIT")


def chosen(kind: type[Lender], store: str, driver: str) -> type[Lender]:
    """By the engine, for all its connections."""
    members = {"store": store, "driver": driver, "options": {"isolation_level": "AUTOCOMMIT"}}
    return type(f"{kind.__name__}-{driver}", (kind,), members)


KINDS: list[type[Lender]] = [
    Psycopg,
    AsyncPsycopg,
    drivers.Asyncpg,
    drivers.AsyncpgPooled,
    Sqlite,
    *([SqliteByAttribute] if sys.version_info >= (3, 12) else []),
    drivers.Pymongo,
    drivers.AsyncPymongo,
    alchemy.on(AlchemyByOption, "postgres", "psycopg"),
    alchemy.on(AlchemyByOption, "sqlite", "pysqlite"),
    chosen(alchemy.AlchemySession, "postgres", "psycopg"),
    chosen(alchemy.AsyncAlchemy, "postgres", "psycopg"),
    chosen(alchemy.AsyncAlchemySession, "postgres", "asyncpg"),
    chosen(alchemy.Alchemy, "sqlite", "pysqlite"),
    chosen(alchemy.AsyncAlchemy, "sqlite", "aiosqlite"),
]

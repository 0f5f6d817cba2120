"""SQLAlchemy's connections and sessions, sync and async, on each driver."""

from __future__ import annotations

from typing import Any

from sqlalchemy import create_engine, event, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from tests.caller_transactions.lender import Lender


def engine_url(url: str, driver: str) -> str:
    dialect, _, rest = url.partition("://")
    return f"{dialect}+{driver}://{rest}"


class Alchemy(Lender):
    """A sync connection or session; `_borrow` tells which."""

    is_async = False
    driver: str
    options: dict[str, Any] = {}  # noqa: RUF012

    async def open(self) -> None:
        self.engine = create_engine(engine_url(self.url, self.driver), poolclass=NullPool, **self.options)
        self.connection = self._borrow()

    def _borrow(self) -> Any:
        return self.engine.connect()

    async def close(self) -> None:
        self.connection.close()
        self.engine.dispose()

    async def commit(self) -> None:
        self.connection.commit()

    async def rollback(self) -> None:
        self.connection.rollback()

    async def execute(self, statement: str) -> None:
        self.connection.execute(text(statement))

    async def set_savepoint(self) -> None:
        self._savepoint = self.connection.begin_nested()

    async def release_savepoint(self) -> None:
        self._savepoint.commit()

    async def roll_back_to_savepoint(self) -> None:
        self._savepoint.rollback()


class AlchemySession(Alchemy):
    def _borrow(self) -> Any:
        return Session(self.engine)


class AlchemyBeginning(Alchemy):
    """SQLAlchemy's recipe for savepoints in SQLite: the driver does not begin, SQLAlchemy does."""

    async def open(self) -> None:
        await super().open()
        self.connection.close()
        event.listen(self.engine, "connect", self._leave_alone)
        event.listen(self.engine, "begin", self._begin)
        self.connection = self._borrow()

    @staticmethod
    def _leave_alone(driver: Any, record: object) -> None:
        driver.isolation_level = None

    @staticmethod
    def _begin(connection: Any) -> None:
        connection.exec_driver_sql("BEGIN")


class AsyncAlchemy(Lender):
    is_async = True
    driver: str
    options: dict[str, Any] = {}  # noqa: RUF012

    async def open(self) -> None:
        self.engine = create_async_engine(engine_url(self.url, self.driver), poolclass=NullPool, **self.options)
        self.connection = await self._borrow()

    async def _borrow(self) -> Any:
        return await self.engine.connect()

    async def close(self) -> None:
        await self.connection.close()
        await self.engine.dispose()

    async def commit(self) -> None:
        await self.connection.commit()

    async def rollback(self) -> None:
        await self.connection.rollback()

    async def execute(self, statement: str) -> None:
        await self.connection.execute(text(statement))

    async def set_savepoint(self) -> None:
        self._savepoint = await self.connection.begin_nested()

    async def release_savepoint(self) -> None:
        await self._savepoint.commit()

    async def roll_back_to_savepoint(self) -> None:
        await self._savepoint.rollback()


class AsyncAlchemySession(AsyncAlchemy):
    async def _borrow(self) -> Any:
        return AsyncSession(self.engine)


def on(kind: type[Lender], store: str, driver: str) -> type[Lender]:
    """That kind on one driver."""
    return type(f"{kind.__name__}-{driver}", (kind,), {"store": store, "driver": driver})


KINDS = [
    *(on(kind, "postgres", "psycopg") for kind in (Alchemy, AlchemySession, AsyncAlchemy, AsyncAlchemySession)),
    *(on(kind, "postgres", "asyncpg") for kind in (AsyncAlchemy, AsyncAlchemySession)),
    *(on(kind, "sqlite", "pysqlite") for kind in (Alchemy, AlchemySession, AlchemyBeginning)),
    *(on(kind, "sqlite", "aiosqlite") for kind in (AsyncAlchemy, AsyncAlchemySession)),
]

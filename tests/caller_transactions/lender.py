"""A connection of the caller's own, driven alike whatever kind it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from windlass import Call, Job, Task, Windlass


class Lender:
    """Opens a connection, keeps a transaction on it, and lends it to the queue.

    `connection` is what is passed as `connection=`. `write` is the caller's own part of the transaction.
    """

    store: ClassVar[str]
    is_async: ClassVar[bool]
    has_savepoints: ClassVar[bool] = True
    connection: Any

    def __init__(self, url: str, table: str) -> None:
        self.url, self.table = url, table

    async def open(self) -> None:
        raise NotImplementedError

    async def close(self) -> None:
        raise NotImplementedError

    async def begin(self) -> None:
        """Nothing to do where the driver begins by itself."""

    async def commit(self) -> None:
        await self.execute("COMMIT")

    async def rollback(self) -> None:
        await self.execute("ROLLBACK")

    async def execute(self, text: str) -> None:
        raise NotImplementedError

    async def write(self, text: str) -> None:
        await self.execute(f"INSERT INTO {self.table} VALUES ('{text}')")

    async def set_savepoint(self) -> None:
        await self.execute("SAVEPOINT here")

    async def release_savepoint(self) -> None:
        await self.execute("RELEASE SAVEPOINT here")

    async def roll_back_to_savepoint(self) -> None:
        await self.execute("ROLLBACK TO SAVEPOINT here")

    async def enqueue(self, task: Task[..., Any], *args: Any) -> Job:
        lent = task.using(connection=self.connection)
        return await lent.aenqueue(*args) if self.is_async else lent.enqueue(*args)

    async def enqueue_many(self, app: Windlass, calls: Sequence[Call]) -> list[Job]:
        if self.is_async:
            return await app.aenqueue_many(calls, connection=self.connection)
        return app.enqueue_many(calls, connection=self.connection)

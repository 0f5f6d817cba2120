"""A table of the user's own beside the queue, on each store."""

from __future__ import annotations

from typing import Any


class Ledger:
    """A table of the user's own beside the queue: what handlers write, and what is there afterwards. `create=False`
    takes the one that another process has made."""

    def __init__(self, url: str, *, create: bool = True) -> None:
        self.url, self.kind = url, url.split(":", 1)[0]
        self.path = url.removeprefix("sqlite:///")
        self._client: Any = None
        if self.kind == "mongodb":
            from pymongo import MongoClient

            self._client = MongoClient(url, connect=False)
        if create:
            self._create()

    def _create(self) -> None:
        if self.kind == "sqlite":
            import sqlite3

            with sqlite3.connect(self.path) as connection:
                connection.execute("CREATE TABLE ledger (entry text)")
        elif self.kind == "postgresql":
            import psycopg

            with psycopg.connect(self.url, autocommit=True) as connection:
                connection.execute("CREATE TABLE ledger (entry text)")
        else:
            self._client.get_default_database().create_collection("ledger")

    def write(self, connection: Any, entry: str) -> None:
        if self.kind == "mongodb":
            database = connection.client.get_default_database(self._name)
            database.ledger.insert_one({"entry": entry}, session=connection)
        else:
            connection.execute(f"INSERT INTO ledger VALUES ({self._mark})", (entry,))

    async def awrite(self, connection: Any, entry: str) -> None:
        if self.kind == "mongodb":
            database = connection.client.get_default_database(self._name)
            await database.ledger.insert_one({"entry": entry}, session=connection)
        else:
            await connection.execute(f"INSERT INTO ledger VALUES ({self._mark})", (entry,))

    @property
    def _mark(self) -> str:
        return "?" if self.kind == "sqlite" else "%s"

    @property
    def _name(self) -> str:
        return str(self._client.get_default_database().name)

    @property
    def entries(self) -> list[str]:
        if self.kind == "sqlite":
            import sqlite3

            with sqlite3.connect(self.path) as connection:
                return sorted(row[0] for row in connection.execute("SELECT entry FROM ledger"))
        if self.kind == "postgresql":
            import psycopg

            with psycopg.connect(self.url) as connection:
                return sorted(row[0] for row in connection.execute("SELECT entry FROM ledger").fetchall())
        return sorted(row["entry"] for row in self._client.get_default_database().ledger.find())

    def close(self) -> None:
        if self._client is not None:
            self._client.close()

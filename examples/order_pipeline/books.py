"""The shop's own tables (or collections) in the queue's database: the stock, and a ledger.

The ledger has no unique key. Only the transaction makes sure that no entry is written twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from typing import Any, Literal, Protocol
from urllib.parse import urlsplit

Entry = tuple[str, str, int]
"""The order, the action, the amount."""
Taken = Literal["taken", "too few", "unknown"]


class Books(Protocol):
    """`take`, `put` and `enter` write on the connection of `attempt.transaction()`."""

    async def take(self, connection: Any, article: str, quantity: int) -> Taken: ...

    async def put(self, connection: Any, article: str, quantity: int) -> None: ...

    async def enter(self, connection: Any, order: str, what: str, amount: int) -> None: ...

    def open(self, stock: Mapping[str, int]) -> None:
        """Create the tables and fill the stock. Call it before the first order."""

    def entries(self) -> list[Entry]:
        """The entries of the ledger, sorted."""

    def stock(self) -> dict[str, int]: ...


def open_books(url: str) -> Books:
    match urlsplit(url).scheme:
        case "sqlite":
            return SqliteBooks(url)
        case "mongodb" | "mongodb+srv":
            return MongoBooks(url)
        case _:
            return PostgresBooks(url)


class SqliteBooks:
    mark = "?"

    def __init__(self, url: str) -> None:
        self.url = url

    async def run(self, connection: Any, statement: str, *values: Any) -> Any:
        return await connection.execute(statement.replace("?", self.mark), values)

    async def take(self, connection: Any, article: str, quantity: int) -> Taken:
        less = "UPDATE stock SET quantity = quantity - ? WHERE article = ? AND quantity >= ?"
        if (await self.run(connection, less, quantity, article, quantity)).rowcount:
            return "taken"
        found = await self.run(connection, "SELECT 1 FROM stock WHERE article = ?", article)
        return "too few" if await found.fetchone() else "unknown"

    async def put(self, connection: Any, article: str, quantity: int) -> None:
        await self.run(connection, "UPDATE stock SET quantity = quantity + ? WHERE article = ?", quantity, article)

    async def enter(self, connection: Any, order: str, what: str, amount: int) -> None:
        await self.run(connection, "INSERT INTO ledger VALUES (?, ?, ?)", order, what, amount)

    def connect(self) -> Any:
        import sqlite3

        return sqlite3.connect(self.url.removeprefix("sqlite:///").split("?")[0], timeout=10)

    def open(self, stock: Mapping[str, int]) -> None:
        with closing(self.connect()) as connection, connection:
            connection.execute("CREATE TABLE stock (article text PRIMARY KEY, quantity integer NOT NULL)")
            connection.execute("CREATE TABLE ledger (order_number text, what text, amount integer)")
            for article, quantity in stock.items():
                connection.execute(f"INSERT INTO stock VALUES ({self.mark}, {self.mark})", (article, quantity))

    def entries(self) -> list[Entry]:
        with closing(self.connect()) as connection:
            return sorted(connection.execute("SELECT order_number, what, amount FROM ledger").fetchall())

    def stock(self) -> dict[str, int]:
        with closing(self.connect()) as connection:
            return dict(connection.execute("SELECT article, quantity FROM stock").fetchall())


class PostgresBooks(SqliteBooks):
    """The same statements, with another placeholder for values."""

    mark = "%s"

    def connect(self) -> Any:
        import psycopg

        return psycopg.connect(self.url)


class MongoBooks:
    def __init__(self, url: str) -> None:
        self.url = url
        self.database = urlsplit(url).path.strip("/")

    async def take(self, session: Any, article: str, quantity: int) -> Taken:
        stock = session.client[self.database].stock
        enough = {"_id": article, "quantity": {"$gte": quantity}}
        taken = await stock.update_one(enough, {"$inc": {"quantity": -quantity}}, session=session)
        if taken.modified_count:
            return "taken"
        return "too few" if await stock.find_one({"_id": article}, session=session) else "unknown"

    async def put(self, session: Any, article: str, quantity: int) -> None:
        stock = session.client[self.database].stock
        await stock.update_one({"_id": article}, {"$inc": {"quantity": quantity}}, session=session)

    async def enter(self, session: Any, order: str, what: str, amount: int) -> None:
        entry = {"order_number": order, "what": what, "amount": amount}
        await session.client[self.database].ledger.insert_one(entry, session=session)

    def connect(self) -> Any:
        from pymongo import MongoClient

        return MongoClient(self.url)

    def open(self, stock: Mapping[str, int]) -> None:
        with self.connect() as client:
            client[self.database].create_collection("ledger")
            client[self.database].stock.insert_many([{"_id": key, "quantity": value} for key, value in stock.items()])

    def entries(self) -> list[Entry]:
        with self.connect() as client:
            return sorted(
                (one["order_number"], one["what"], one["amount"]) for one in client[self.database].ledger.find()
            )

    def stock(self) -> dict[str, int]:
        with self.connect() as client:
            return {one["_id"]: one["quantity"] for one in client[self.database].stock.find()}

"""The memories, in the queue's database, so that one transaction writes both.

`add` writes on the connection of `attempt.transaction()`. `search` reads one tenant's memories, nearest first. It is
exact: pgvector compares all rows of the tenant. Without pgvector, Python does.
"""

from __future__ import annotations

import heapq
import sqlite3
from array import array
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

from .embedders import Vector
from .extractors import Memory
from .settings import SettingsError

Embedded = tuple[Memory, Vector]


@dataclass(frozen=True, slots=True)
class Hit:
    kind: str
    text: str
    user: str
    similarity: float


class Memories(Protocol):
    def prepare(self) -> None:
        """Create the table if it does not exist. `SettingsError` if the existing one has vectors of another size."""
        ...

    async def add(self, connection: Any, tenant: str, user: str, found: Sequence[Embedded]) -> None:
        """Write the memories. The caller commits the transaction."""
        ...

    def search(self, tenant: str, vector: Vector, *, user: str | None = None, limit: int = 10) -> list[Hit]:
        """The nearest memories of this tenant only, or of one of its users."""
        ...

    def close(self) -> None: ...


def open_memories(url: str, dimensions: int) -> Memories:
    match urlsplit(url).scheme:
        case "sqlite":
            return SqliteMemories(url, dimensions)
        case "postgresql" | "postgres":
            return PostgresMemories(url, dimensions)
        case _:
            return MongoMemories(url, dimensions)


def check_dimensions(wanted: int, there: int | None) -> None:
    if there not in (None, wanted):
        raise SettingsError(f"MEMORY_DIMENSIONS is {wanted}, but the memories in this database have {there}; set that")


def nearest(rows: Iterable[tuple[str, str, str, Sequence[float]]], vector: Vector, limit: int) -> list[Hit]:
    """The nearest rows. All vectors have length one, so the cosine is the dot product."""
    hits = (
        Hit(kind, text, user, sum(a * b for a, b in zip(vector, other, strict=True)))
        for kind, text, user, other in rows
    )
    return heapq.nlargest(limit, hits, key=lambda hit: hit.similarity)


class SqliteMemories:
    def __init__(self, url: str, dimensions: int) -> None:
        self.path, self.dimensions = unquote(urlsplit(url).path)[1:], dimensions

    def prepare(self) -> None:
        with closing(self.connect()) as connection:
            connection.execute(
                "CREATE TABLE IF NOT EXISTS memories (id integer PRIMARY KEY, tenant text NOT NULL,"
                " user_key text NOT NULL, kind text NOT NULL, text text NOT NULL, embedding blob NOT NULL)"
            )
            connection.execute("CREATE INDEX IF NOT EXISTS memories_owner ON memories (tenant, user_key)")
            one = connection.execute("SELECT embedding FROM memories LIMIT 1").fetchone()
        check_dimensions(self.dimensions, len(array("f", one[0])) if one else None)

    async def add(self, connection: Any, tenant: str, user: str, found: Sequence[Embedded]) -> None:
        await connection.executemany(
            "INSERT INTO memories (tenant, user_key, kind, text, embedding) VALUES (?, ?, ?, ?, ?)",
            [(tenant, user, memory.kind, memory.text, array("f", vector).tobytes()) for memory, vector in found],
        )

    def search(self, tenant: str, vector: Vector, *, user: str | None = None, limit: int = 10) -> list[Hit]:
        with closing(self.connect()) as connection:
            rows = connection.execute(
                "SELECT kind, text, user_key, embedding FROM memories"
                " WHERE tenant = ? AND user_key = ifnull(?, user_key)",
                (tenant, user),
            )
            return nearest(((*row[:3], array("f", row[3])) for row in rows), vector, limit)

    def connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path, timeout=30)

    def close(self) -> None: ...


class PostgresMemories:
    """Memories in pgvector. A vector is sent as text and cast, so that the driver need not know the type. Each search
    opens a connection: use a connection pool if you search often."""

    def __init__(self, url: str, dimensions: int) -> None:
        import psycopg

        self.psycopg, self.url, self.dimensions = psycopg, url, dimensions

    def prepare(self) -> None:
        with self.psycopg.connect(self.url) as connection:
            # API and worker may start at the same moment, and IF NOT EXISTS takes no lock.
            connection.execute("SELECT pg_advisory_xact_lock(hashtext('memories'))")
            connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
            connection.execute(
                "CREATE TABLE IF NOT EXISTS memories (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,"
                " tenant text NOT NULL, user_key text NOT NULL, kind text NOT NULL, text text NOT NULL,"
                f" embedding vector({self.dimensions:d}) NOT NULL)"
            )
            connection.execute("CREATE INDEX IF NOT EXISTS memories_owner ON memories (tenant, user_key)")
            one = connection.execute("SELECT vector_dims(embedding) FROM memories LIMIT 1").fetchone()
        check_dimensions(self.dimensions, one[0] if one else None)

    async def add(self, connection: Any, tenant: str, user: str, found: Sequence[Embedded]) -> None:
        async with connection.cursor() as cursor:
            await cursor.executemany(
                "INSERT INTO memories (tenant, user_key, kind, text, embedding) VALUES (%s, %s, %s, %s, %s::vector)",
                [(tenant, user, memory.kind, memory.text, _literal(vector)) for memory, vector in found],
            )

    def search(self, tenant: str, vector: Vector, *, user: str | None = None, limit: int = 10) -> list[Hit]:
        with self.psycopg.connect(self.url) as connection:
            rows = connection.execute(
                "SELECT kind, text, user_key, 1 - (embedding <=> %(vector)s::vector) FROM memories"
                " WHERE tenant = %(tenant)s AND user_key = coalesce(%(user)s::text, user_key)"
                " ORDER BY embedding <=> %(vector)s::vector, id LIMIT %(limit)s",
                {"vector": _literal(vector), "tenant": tenant, "user": user, "limit": limit},
            )
            return [Hit(*row) for row in rows]

    def close(self) -> None: ...


def _literal(vector: Vector) -> str:
    return f"[{','.join(map(repr, vector))}]"


class MongoMemories:
    def __init__(self, url: str, dimensions: int) -> None:
        from pymongo import MongoClient

        self.client: MongoClient[dict[str, Any]] = MongoClient(url, connect=False)
        self.database, self.dimensions = self.client.get_default_database("windlass").name, dimensions

    def prepare(self) -> None:
        self.client[self.database].memories.create_index([("tenant", 1), ("user", 1)])
        one = self.client[self.database].memories.find_one()
        check_dimensions(self.dimensions, len(one["embedding"]) if one else None)

    async def add(self, connection: Any, tenant: str, user: str, found: Sequence[Embedded]) -> None:
        documents = [
            {"tenant": tenant, "user": user, "kind": memory.kind, "text": memory.text, "embedding": vector}
            for memory, vector in found
        ]
        if documents:
            await connection.client[self.database].memories.insert_many(documents, session=connection)

    def search(self, tenant: str, vector: Vector, *, user: str | None = None, limit: int = 10) -> list[Hit]:
        owner = {"tenant": tenant} if user is None else {"tenant": tenant, "user": user}
        rows = self.client[self.database].memories.find(owner)
        return nearest(((row["kind"], row["text"], row["user"], row["embedding"]) for row in rows), vector, limit)

    def close(self) -> None:
        self.client.close()

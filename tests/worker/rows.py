"""To write into a job's row what no operation would: as a newer version, or somebody by hand, might leave it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import Any
from uuid import UUID

import psycopg
from pymongo import MongoClient

from windlass.stores.mongodb.connections import HANDLE


def rewrite(url: str, id: UUID, **columns: Any) -> None:
    """Give these columns, or fields, these values; on PostgreSQL from text, so that any will do."""
    if url.startswith("mongodb"):
        client: MongoClient[Any] = MongoClient(url)
        with client:
            jobs = client.get_default_database().get_collection("windlass_jobs", **HANDLE)
            assert jobs.update_one({"_id": id}, {"$set": columns}).matched_count == 1
        return
    if url.startswith("postgresql"):
        changes = ", ".join(f"{name} = %s" for name in columns)
        with psycopg.connect(url) as connection:
            done = connection.execute(f"UPDATE windlass_jobs SET {changes} WHERE id = %s", [*columns.values(), id])
            assert done.rowcount == 1
        return
    changes = ", ".join(f"{name} = ?" for name in columns)
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as file, file:
        changed = file.execute(f"UPDATE windlass_jobs SET {changes} WHERE id = ?", [*columns.values(), str(id)])
        assert changed.rowcount == 1

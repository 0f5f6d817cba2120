"""The entries of conversations: the service's own data. The vector store has an index of them."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Entry:
    id: int
    group: str
    text: str


class Entries:
    """A table in a SQLite file. An entry is pending until the vector store has it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with closing(self._connect()) as connection, connection:
            connection.execute(
                "CREATE TABLE IF NOT EXISTS entries (id integer PRIMARY KEY, grouping, text, indexed_at)"
            )

    def add(self, group: str, text: str) -> Entry:
        with closing(self._connect()) as connection, connection:
            added = connection.execute("INSERT INTO entries (grouping, text) VALUES (?, ?)", (group, text))
            return Entry(added.lastrowid or 0, group, text)

    def mark_indexed(self, entry: Entry) -> None:
        with closing(self._connect()) as connection, connection:
            connection.execute("UPDATE entries SET indexed_at = datetime('now') WHERE id = ?", (entry.id,))

    def pending(self, limit: int) -> list[Entry]:
        """Some entries that are not in the vector store yet, at random, so that failing entries do not block others."""
        query = "SELECT id, grouping, text FROM entries WHERE indexed_at IS NULL ORDER BY random() LIMIT ?"
        with closing(self._connect()) as connection:
            return [Entry(*row) for row in connection.execute(query, (limit,))]

    def count_pending(self) -> int:
        with closing(self._connect()) as connection:
            (count,) = connection.execute("SELECT count(*) FROM entries WHERE indexed_at IS NULL").fetchone()
            return int(count)

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path, timeout=30)

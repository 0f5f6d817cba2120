"""A small vector store in a SQLite file, as a stand-in for a server. Tests can make it fail."""

from __future__ import annotations

import json
import math
import sqlite3
import zlib
from contextlib import closing
from operator import mul
from pathlib import Path

DIMENSIONS = 32


class VectorStoreDown(ConnectionError):
    """The vector store does not answer now. It may answer later."""


class VectorStore:
    """Vectors of entries, in conversation groups. Several processes may use one file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with closing(self._connect()) as connection, connection:
            connection.execute("CREATE TABLE IF NOT EXISTS vectors (entry integer PRIMARY KEY, grouping, vector)")
            connection.execute("CREATE TABLE IF NOT EXISTS deletions (grouping)")
            connection.execute("CREATE TABLE IF NOT EXISTS outages (grouping PRIMARY KEY)")

    def index(self, group: str, entry: int, text: str) -> None:
        """Add an entry, or replace it."""
        with closing(self._connect()) as connection, connection:
            _require_up(connection, group)
            vector = json.dumps(embed(text))
            connection.execute("INSERT OR REPLACE INTO vectors VALUES (?, ?, ?)", (entry, group, vector))

    def delete(self, group: str) -> None:
        """Delete all entries of a group, and record the deletion, as a server does in its log."""
        with closing(self._connect()) as connection, connection:
            _require_up(connection, group)
            connection.execute("DELETE FROM vectors WHERE grouping = ?", (group,))
            connection.execute("INSERT INTO deletions VALUES (?)", (group,))

    def nearest(self, text: str) -> int | None:
        """The entry that is most similar to this text."""
        wanted = embed(text)
        with closing(self._connect()) as connection:
            rows = connection.execute("SELECT entry, vector FROM vectors").fetchall()
        likeness = {entry: sum(map(mul, wanted, json.loads(vector))) for entry, vector in rows}
        return max(likeness, key=likeness.__getitem__, default=None)

    def fail_for(self, group: str) -> None:
        """Make all calls for this group fail."""
        with closing(self._connect()) as connection, connection:
            connection.execute("INSERT OR IGNORE INTO outages VALUES (?)", (group,))

    def recover(self) -> None:
        """End all failures."""
        with closing(self._connect()) as connection, connection:
            connection.execute("DELETE FROM outages")

    @property
    def deletions(self) -> list[str]:
        """The groups of all deletions, in their order."""
        with closing(self._connect()) as connection:
            return [group for (group,) in connection.execute("SELECT grouping FROM deletions ORDER BY rowid")]

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path, timeout=30)


def embed(text: str) -> list[float]:
    """A vector of length 1 from the words of a text, without a model. Similar texts get similar vectors."""
    vector = [0.0] * DIMENSIONS
    for word in text.lower().split():
        vector[zlib.crc32(word.encode()) % DIMENSIONS] += 1.0
    length = math.hypot(*vector) or 1.0
    return [value / length for value in vector]


def _require_up(connection: sqlite3.Connection, group: str) -> None:
    if connection.execute("SELECT 1 FROM outages WHERE grouping = ?", (group,)).fetchone():
        raise VectorStoreDown(f"the vector store does not answer for {group}")

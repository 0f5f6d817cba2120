"""The platform's own data: turns, events, memories and their vectors, providers.

The key of a record comes from its job, so a job that runs twice writes it once. The records are in a SQLite file, to
keep the example short. Tables in the queue's database, written in `attempt.transaction()`, would not need such keys.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from typing import Any


class Records:
    """Documents by kind and key. Several processes may use one file."""

    def __init__(self, path: str) -> None:
        self.path = path
        with closing(self._connect()) as connection, connection:
            connection.execute("CREATE TABLE IF NOT EXISTS records (kind, key, value, PRIMARY KEY (kind, key))")

    def put(self, kind: str, key: object, value: Any) -> None:
        with closing(self._connect()) as connection, connection:
            connection.execute("INSERT OR REPLACE INTO records VALUES (?, ?, ?)", (kind, str(key), json.dumps(value)))

    def all(self, kind: str) -> dict[str, Any]:
        query = "SELECT key, value FROM records WHERE kind = ? ORDER BY key"
        with closing(self._connect()) as connection:
            return {key: json.loads(value) for key, value in connection.execute(query, (kind,))}

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path, timeout=30)

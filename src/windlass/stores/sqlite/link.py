"""Steps on a sqlite3 connection."""

from __future__ import annotations

import sqlite3
import time
from typing import Any

from ...operation import Begin, Commit, Copy, Current, Rollback, Rows, Sleep, Statement, Step
from ..sql.values import bound

# Always IMMEDIATE: a deferred transaction that has read cannot wait for the lock when it begins to write.
CONTROL = {Begin: "BEGIN IMMEDIATE", Commit: "COMMIT", Rollback: "ROLLBACK"}


class SqliteLink:
    """On a connection of Windlass, which is in autocommit mode, or on one of the caller."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self.cursor = connection.cursor()
        self.cursor.row_factory = None

    def execute(self, step: Step) -> Rows:
        match step:
            case Statement():
                return self._statement(step)
            case Copy(fallback=fallback):
                return self.execute(fallback())
            case Sleep(seconds=seconds):
                time.sleep(seconds)
            case Current():
                pass  # a writer sees all commits, or is refused
            case Rollback() if not self.connection.in_transaction:
                pass  # a full disk has rolled back by itself
            case _:
                self.cursor.execute(CONTROL[type(step)])
        return ()

    def _statement(self, step: Statement) -> Rows:
        rows: list[Any] = []
        for text, values in bound(step):
            rows += self.cursor.execute(text, values).fetchall()
        return rows

"""SQLite as a job queue: one file, no set-up."""

from __future__ import annotations

from ...clock import Clock
from ..columns import COLUMNS, Columns
from ..sql.store import SqlStore
from .connections import SqliteConnections
from .dialect import SqliteDialect
from .wakeup import SqliteWakeup


class SqliteStore(SqlStore):
    def __init__(
        self, path: str, *, prefix: str = "windlass_", journal_mode: str | None = None, clock: Clock | None = None,
        columns: Columns = COLUMNS,
    ) -> None:  # fmt: skip
        super().__init__(SqliteDialect(prefix, columns, clock or Clock()))
        self.prefix = prefix
        self.wakeup = SqliteWakeup(path)
        self.connections = SqliteConnections(path, journal_mode, f"{prefix}jobs")

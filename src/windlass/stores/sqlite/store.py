"""SQLite as a job queue: one file, no set-up."""

from __future__ import annotations

from ...clock import Clock
from ..sql.store import SqlStore
from .connections import SqliteConnections
from .dialect import SqliteDialect
from .wakeup import SqliteWakeup


class SqliteStore(SqlStore):
    def __init__(
        self, path: str, *, prefix: str = "windlass_", journal_mode: str | None = None, clock: Clock | None = None
    ) -> None:
        super().__init__(SqliteDialect(prefix, clock))
        self.prefix = prefix
        self.wakeup = SqliteWakeup(path)
        self.connections = SqliteConnections(path, journal_mode, f"{prefix}jobs")

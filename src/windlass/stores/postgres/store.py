"""PostgreSQL as a job queue."""

from __future__ import annotations

import hashlib

from ...clock import Clock
from ..columns import COLUMNS, Columns
from ..sql.store import SqlStore
from .connections import PostgresConnections
from .dialect import PostgresDialect
from .wakeup import PostgresWakeup


class PostgresStore(SqlStore):
    def __init__(
        self, url: str, *, schema: str = "public", prefix: str = "windlass_", pool_size: int = 10,
        clock: Clock | None = None, columns: Columns = COLUMNS,
    ) -> None:  # fmt: skip
        self.channel = channel_name(schema, prefix)
        super().__init__(PostgresDialect(schema, prefix, self.channel, columns, clock or Clock()))
        self.schema, self.prefix = schema, prefix
        self.connections = PostgresConnections(url, pool_size, self.sql.placeholders["jobs"])
        self.wakeup = PostgresWakeup(self.connections, self.channel)


def channel_name(schema: str, prefix: str) -> str:
    """One channel for one queue; a channel's name has 63 characters at the most."""
    plain = f"{schema}.{prefix}hints"
    return plain if len(plain) < 64 else "windlass_" + hashlib.blake2s(plain.encode(), digest_size=16).hexdigest()

"""The examination of PostgreSQL by `windlass doctor`."""

from __future__ import annotations

import json

from ...operation import Operation
from ..sql.examination import missing_indexes
from ..sql.query import Queries
from ..store import Finding

OLD_SECONDS = 600.0  # a snapshot that is older keeps many dead rows
FULL = 0.9  # of all connections
DEAD_ROWS, DEAD_SHARE = 100_000, 10  # of the live table: more, and so many times as many as live ones


class Examination:
    def __init__(self, queries: Queries) -> None:
        self.queries = queries

    def examine(self) -> Operation[list[Finding]]:
        ((version, used, most, live, dead),) = yield self.queries.statement("examine_server", alone=True)
        there = yield self.queries.statement("examine_indexes", alone=True)
        ((session, prepared, hidden),) = yield self.queries.statement("examine_snapshots", alone=True)
        library = self.queries.library
        return [
            Finding("server", True, f"PostgreSQL {version}"),
            _connections(used, most),
            missing_indexes(library, {row[0] for row in there}),
            _snapshots(session, prepared, hidden),
            _dead_rows(library.placeholders["jobs"], live, dead),
        ]


def _connections(used: int, most: int) -> Finding:
    text = f"{used} of {most} are in use"
    remedy = "raise max_connections, or put a pooler between"
    return Finding("connections", used < FULL * most, text, remedy)


def _snapshots(session: str | None, prepared: str | None, hidden: int) -> Finding:
    """A transaction that stays open keeps dead rows from being removed: claims become slower by and by."""
    if prepared is not None:
        name, seconds = json.loads(prepared)
        if seconds > OLD_SECONDS:
            return Finding(
                "snapshots", False, f"the prepared transaction {name!r} is {_minutes(seconds)} old: dead rows pile up",
                f"ROLLBACK PREPARED '{name}', or COMMIT PREPARED",
            )  # fmt: skip
    if session is not None:
        pid, user, program, state, seconds = json.loads(session)
        if seconds > OLD_SECONDS:
            who = f"process {pid} of {user} ({program or 'no application_name'}, {state})"
            text = f"{who} has had a transaction open for {_minutes(seconds)}: dead rows pile up"
            return Finding("snapshots", False, text, f"SELECT pg_terminate_backend({pid})")
    text = "no transaction is open for long"
    if hidden:
        text += f", as far as this role may see ({hidden} sessions of others: GRANT pg_read_all_stats shows them)"
    return Finding("snapshots", True, text)


def _dead_rows(table: str, live: int, dead: int) -> Finding:
    is_right = dead < DEAD_ROWS or dead < DEAD_SHARE * live
    return Finding("dead rows", is_right, f"{dead:,} beside {live:,} live jobs", f"VACUUM {table}, or app.vacuum()")


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:,.0f} minutes"

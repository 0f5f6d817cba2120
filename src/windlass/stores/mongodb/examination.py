"""The examination of MongoDB by `windlass doctor`."""

from __future__ import annotations

from typing import Any

from ...errors import WindlassError
from ...operation import Operation, Request
from ..store import Finding
from .context import Part
from .migrations import MIGRATIONS

SHORT_SECONDS = 3600.0  # a backup or a member that is away for longer cannot catch up
FIRST_ENTRY = "initiating set"  # the oplog of a young replica set still begins with this


class Examination(Part):
    """Operation `examine`."""

    def examine(self) -> Operation[list[Finding]]:
        return [(yield from self._indexes()), (yield from self._oplog())]

    def _indexes(self) -> Operation[Finding]:
        wanted: set[tuple[str, str]] = set()
        for migration in MIGRATIONS:
            wanted |= {(one.collection, one.name) for one in migration.indexes}
            wanted -= set(migration.drops)
        there: set[tuple[str, str]] = set()
        for name in sorted({collection for collection, _ in wanted}):
            (indexes,) = yield Request(self.context.prefix + name, "index_information", alone=True)
            there |= {(name, index) for index in indexes}
        missing = sorted(f"{self.context.prefix}{collection}.{name}" for collection, name in wanted - there)
        remedy = "windlass sql prints the statements that make them: run those of the missing ones"
        text = f"missing: {', '.join(missing)}" if missing else f"all {len(wanted)} are there"
        return Finding("indexes", not missing, text, remedy)

    def _oplog(self) -> Operation[Finding]:
        try:
            first = yield from self._entry(1)
            last = yield from self._entry(-1)
        except WindlassError as error:
            return Finding("oplog", True, f"this user may not read it: {error}")
        if first is None or last is None:
            return Finding("oplog", True, "it is empty")
        seconds = (last["wall"] - first["wall"]).total_seconds()
        is_young = (first.get("o") or {}).get("msg") == FIRST_ENTRY
        text = f"it reaches back {seconds / 3600:,.1f} hours" + (", to the beginning" if is_young else "")
        remedy = "a larger one: db.adminCommand({replSetResizeOplog: 1, size: 16384})"
        return Finding("oplog", is_young or seconds > SHORT_SECONDS, text, remedy)

    def _entry(self, direction: int) -> Operation[dict[str, Any] | None]:
        options = {"sort": [("$natural", direction)], "limit": 1}
        rows = yield Request("oplog.rs", "find", ({}, {"wall": 1, "o.msg": 1}), options, alone=True, database="local")
        return rows[0] if rows else None

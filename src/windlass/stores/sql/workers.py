"""Workers in SQL: which are alive, and when the next job is due for them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from ...operation import Operation
from ..store import WorkerInfo
from .dialect import Part


class Workers(Part):
    """Operations `now`, `next_due`, `stuck`, `beat`, `farewell`, `workers`."""

    def now(self) -> Operation[datetime]:
        rows = yield self.statement("now", alone=True)
        return self.rows.to_datetime(rows[0][0])

    def next_due(self, queues: Sequence[str]) -> Operation[float | None]:
        rows = yield self.statement("next_due", alone=True, queues=self.array(queues))
        return rows[0][0]  # type: ignore[no-any-return]

    def stuck(self, queues: Sequence[str], types: Sequence[str]) -> Operation[list[str]]:
        rows = yield self.statement("stuck", alone=True, queues=self.array(queues), types=self.array(types))
        return [row[0] for row in rows]

    def beat(self, worker: WorkerInfo, gone_seconds: float) -> Operation[None]:
        details = msgspec.json.encode(worker).decode()
        is_one = len(self.queries.library["beat"].statements) == 1
        yield self.statement("beat", alone=is_one, name=worker.name, details=details, gone_seconds=gone_seconds)

    def farewell(self, name: str) -> Operation[None]:
        yield self.statement("farewell", alone=True, name=name)

    def workers(self) -> Operation[list[WorkerInfo]]:
        rows = yield self.statement("workers", alone=True)
        when = self.rows.to_datetime
        return [
            msgspec.structs.replace(
                msgspec.json.decode(details, type=WorkerInfo), started_at=when(started), heard_at=when(heard)
            )
            for details, started, heard in rows
        ]

"""Workers in SQL: who is alive, what they hold while they cannot say so, when there will be work."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, ClassVar
from uuid import UUID

import msgspec

from ...operation import Operation, Statement
from ..store import WorkerInfo
from .rows import RowReader


class Presence:
    """Part of a store: `next_due`, `hold`, `beat`, `farewell`, `workers`."""

    rows: ClassVar[RowReader]

    def array(self, values: Sequence[Any]) -> Any:
        raise NotImplementedError

    def statement(self, name: str, /, *, alone: bool = False, **parameters: Any) -> Statement:
        raise NotImplementedError

    def now(self) -> Operation[datetime]:
        rows = yield self.statement("now", alone=True)
        return self.rows.to_datetime(rows[0][0])

    def next_due(self, queues: Sequence[str]) -> Operation[float | None]:
        rows = yield self.statement("next_due", alone=True, queues=self.array(queues))
        return rows[0][0]  # type: ignore[no-any-return]

    def stuck(self, queues: Sequence[str], types: Sequence[str]) -> Operation[list[str]]:
        rows = yield self.statement("stuck", alone=True, queues=self.array(queues), types=self.array(types))
        return [row[0] for row in rows]

    def hold(self, tokens: Sequence[UUID]) -> Operation[int]:
        rows = yield self.statement("hold", alone=True, tokens=self.array(tokens))
        return len(rows)

    def beat(self, worker: WorkerInfo, gone_seconds: float) -> Operation[None]:
        details = msgspec.json.encode(worker).decode()
        yield self.statement("beat", name=worker.name, details=details, gone_seconds=gone_seconds)

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

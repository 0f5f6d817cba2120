"""Small looks at chains and lanes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from ...job import Job
from ...lifecycle import FINISHED, RUNNING
from ...operation import Operation, Request
from .base import Base
from .documents import to_job


class Chains(Base):
    def now(self) -> Operation[datetime]:
        return (yield from self.read_now())

    def head(self, tenant: str, order_key: str) -> Operation[Job | None]:
        filter = {"tenant": tenant, "order_key": order_key, "lane": 2}
        rows = yield Request(self.jobs, "find", (filter,), alone=True)
        return to_job(rows[0]) if rows else None

    def ends(self, chains: Sequence[UUID]) -> Operation[list[Job]]:
        """One collection has them all: the last job of a chain is its end if it has ended."""
        wanted = list(chains)
        filter = {"$or": [{"_id": {"$in": wanted}}, {"chain_id": {"$in": wanted}, "chain_index": {"$gt": 0}}]}
        rows = yield Request(self.jobs, "find", (filter,), {"sort": [("chain_index", 1)]}, alone=True)
        last = {row.get("chain_id") or row["_id"]: row for row in rows}
        return [to_job(row) for row in last.values() if row["state"] in FINISHED]

    def seize(self, ids: Sequence[UUID], token: UUID) -> Operation[list[Job]]:
        filter = {"_id": {"$in": list(ids)}, "state": RUNNING}
        change = {"$set": {"token": token}, "$unset": {"worker": ""}}
        yield Request(self.jobs, "update_many", (filter, change))
        rows = yield Request(self.jobs, "find", ({**filter, "token": token},))
        return [to_job(row) for row in rows]

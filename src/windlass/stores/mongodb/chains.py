"""Small looks at chains and lanes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from ...job import Job
from ...lifecycle import FINISHED, RUNNING
from ...operation import Operation, Request
from .base import Base
from .documents import HEAD, Document, chain_of, to_job


class Chains(Base):
    def now(self) -> Operation[datetime]:
        return (yield from self.read_now())

    def head(self, tenant: str, order_key: str) -> Operation[Job | None]:
        filter = {"tenant": tenant, "order_key": order_key, "lane": HEAD}
        rows = yield Request(self.jobs, "find", (filter,), alone=True)
        return to_job(rows[0]) if rows else None

    def ends(self, chains: Sequence[UUID]) -> Operation[list[Job]]:
        found = yield from self._ends(chains)
        # A look outside a transaction sees no one moment: a chain may have gone on half-way through it.
        gone_on = [job.chain_id for job in found if job.went_on]
        if gone_on:
            found = [job for job in found if not job.went_on] + (yield from self._ends(gone_on))
        return found

    def _ends(self, chains: Sequence[UUID]) -> Operation[list[Job]]:
        rows = yield self.find_chains([*chains], {"state": 1, "chain_id": 1, "chain_index": 1}, alone=True)
        last = [row["_id"] for row in last_of_each(rows) if row["state"] in FINISHED]
        ended = {"_id": {"$in": last}, "state": {"$in": sorted(FINISHED)}}
        rows = (yield self.find_jobs(ended, size=len(last))) if last else ()
        return [to_job(row) for row in rows]

    def seize(self, ids: Sequence[UUID], token: UUID) -> Operation[list[Job]]:
        filter = {"_id": {"$in": list(ids)}, "state": RUNNING}
        change = {"$set": {"token": token}, "$unset": {"worker": ""}}
        yield Request(self.jobs, "update_many", (filter, change))
        rows = yield Request(self.jobs, "find", ({**filter, "token": token},))
        return [to_job(row) for row in rows]


def last_of_each(rows: Sequence[Document]) -> list[Document]:
    """Of the jobs of some chains the last of each: the only one that may be live, or come to life again."""
    last: dict[UUID, Document] = {}
    for row in sorted(rows, key=lambda row: row.get("chain_index", 0)):
        last[chain_of(row)] = row
    return [*last.values()]

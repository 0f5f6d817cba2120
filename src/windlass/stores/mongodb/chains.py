"""Chains: the jobs that wait for a chain, and pages of chains.

The first job of a chain has neither `chain_id` nor `chain_index`; the others have both.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from ...job import Job
from ...lifecycle import COMPLETED, FINISHED
from ...operation import Operation, Request
from ..store import ChainRecord, Filter
from .context import Part
from .documents import Document, chain_of, last_of_each

MEMBERS = dict.fromkeys(("state", "chain_id", "chain_index"), 1)


class Chains(Part):
    """Operations `dependents` and `chains`."""

    def dependents(self, chain: UUID, limit: int, after: UUID | None = None) -> Operation[list[Job]]:
        filter: Document = {"chain_id": chain}
        if after is not None:
            filter["job"] = {"$gt": after}
        group = [{"$match": filter}, {"$sort": {"chain_id": 1, "job": 1}}, {"$group": {"_id": "$job"}}]
        pipeline = [*group, {"$sort": {"_id": 1}}, {"$limit": limit}]
        rows = yield Request(self.context.edges, "aggregate", (pipeline,), {"hint": "dependents"}, alone=True)
        ids = [row["_id"] for row in rows]
        found = (yield self.context.find_jobs({"_id": {"$in": ids}}, size=len(ids))) if ids else ()
        return [self.context.documents.to_job(row) for row in sorted(found, key=lambda row: row["_id"].bytes)]

    def chains(self, filter: Filter, limit: int, before: UUID | None = None) -> Operation[list[ChainRecord]]:
        """Page by page, until enough chains match the filter."""
        records: list[ChainRecord] = []
        while limit > 0:
            by_root = filter.state in (None, COMPLETED)
            page = (
                (yield from self._roots(filter, limit, before))
                if by_root
                else (yield from self._ends_in(filter.state or "", filter, limit, before))
            )
            found = yield from self._records(page)
            wanted = [one for one in found if filter.state in (None, one.last.state) and _is_of(filter, one.root)]
            records += wanted[: limit - len(records)]
            if len(page) < limit or len(records) == limit:
                return records
            before = page[-1]
        return records

    def _roots(self, filter: Filter, limit: int, before: UUID | None) -> Operation[list[UUID]]:
        query: Document = {name: value for name in OF_ROOT if (value := getattr(filter, name)) is not None}
        query["chain_index"] = None
        if filter.state == COMPLETED:
            query |= {"state": COMPLETED, "finished_at": {"$exists": True}}
        if before is not None:
            query["_id"] = {"$lt": before}
        options = {"sort": [("_id", -1)], "limit": limit, "batch_size": limit + 1}
        rows = yield Request(self.context.jobs, "find", (query, {"_id": 1}), options, alone=True)
        return [row["_id"] for row in rows]

    def _ends_in(self, state: str, filter: Filter, limit: int, before: UUID | None) -> Operation[list[UUID]]:
        """Chains whose newest job is in this state: chains of one job, and longer ones."""
        chains: list[UUID] = []
        for name, of_root in (("_id", True), ("chain_id", False)):
            query: Document = {"state": state, "chain_index": None if of_root else {"$gt": 0}}
            if of_root:
                query |= {field: value for field in OF_ROOT if (value := getattr(filter, field)) is not None}
            if state in FINISHED and of_root:
                query["finished_at"] = {"$exists": True}
            if before is not None:
                query[name] = {"$lt": before}
            options = {"sort": [(name, -1)], "limit": limit, "batch_size": limit + 1}
            rows = yield Request(self.context.jobs, "find", (query, {name: 1}), options, alone=True)
            chains += [row[name] for row in rows]
        return sorted(set(chains), key=lambda chain: chain.bytes, reverse=True)[:limit]

    def _records(self, chains: Sequence[UUID]) -> Operation[list[ChainRecord]]:
        if not chains:
            return []
        rows = yield self.context.find_chains([*chains], MEMBERS, alone=True)
        last = {chain_of(row): row["_id"] for row in last_of_each(rows)}
        ids = {*chains, *last.values()}
        found = yield self.context.find_jobs({"_id": {"$in": [*ids]}}, size=len(ids))
        jobs = {row["_id"]: self.context.documents.to_job(row) for row in found}
        return [
            ChainRecord(jobs[chain], jobs[last[chain]]) for chain in chains if chain in jobs and last.get(chain) in jobs
        ]


OF_ROOT = ("type", "queue", "tenant")


def _is_of(filter: Filter, root: Job) -> bool:
    return all(getattr(filter, name) in (None, getattr(root, name)) for name in OF_ROOT)

"""Deletion of chains. A chain stays while one of its jobs runs, or while other jobs wait for it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from ...lifecycle import FINISHED, LIVE, RUNNING
from ...operation import Operation, Request
from ..blockers import chains_to_delete
from ..store import Change
from ..wakeup import Hint
from .context import BRIEF, Context, Part
from .documents import HEAD, Document, chain_of, order_key_of
from .order_keys import OrderKeys
from .tallies import Tallies


class Waiting(NamedTuple):
    """A live job that waits for a chain."""

    awaited: UUID
    id: UUID
    type: str
    chain: UUID


class Deletions(Part):
    """Operation `delete`."""

    def __init__(self, context: Context, order_keys: OrderKeys, tallies: Tallies) -> None:
        super().__init__(context)
        self.order_keys, self.tallies = order_keys, tallies

    def delete(self, ids: Sequence[UUID], *, cascade: bool = False) -> Operation[list[Change]]:
        documents, _ = yield from self.context.read_brief(ids)
        asked = {chain_of(one) for one in documents.values()}
        blockers = (yield from self._blockers_of(asked)) if cascade else {}
        rows = yield self.context.find_chains([*(asked | blockers.keys())], BRIEF, alone=False)
        chains: defaultdict[UUID, list[Document]] = defaultdict(list)
        for row in sorted(rows, key=lambda row: row.get("chain_index", 0)):
            chains[chain_of(row)].append(row)
        refused = refusals(chains, (yield from self._dependents([*chains])))
        going = chains_to_delete(asked, blockers, refused.keys())
        gone = [one for chain, members in chains.items() if chain in going for one in members]
        if gone:
            yield from self._remove(gone)
        return [answer(id, documents.get(id), refused) for id in ids]

    def _blockers_of(self, chains: Iterable[UUID]) -> Operation[dict[UUID, set[UUID]]]:
        """The chains that these chains wait or have waited for, and the chains that those wait for, and so on."""
        blockers: dict[UUID, set[UUID]] = {chain: set() for chain in chains}
        left = [*blockers]
        while left:
            rows = yield self.context.find_chains(left, {"chain_id": 1}, alone=False)
            chain = {row["_id"]: chain_of(row) for row in rows}
            options = {"hint": "by_job", "batch_size": 10_000}
            filter = {"job": {"$in": [*chain]}}
            edges = yield Request(self.context.edges, "find", (filter, {"job": 1, "chain_id": 1}), options)
            left = [*{edge["chain_id"] for edge in edges} - blockers.keys()]
            blockers |= {awaited: set() for awaited in left}
            for edge in edges:
                blockers[chain[edge["job"]]].add(edge["chain_id"])
        return blockers

    def _dependents(self, chains: Sequence[UUID]) -> Operation[list[Waiting]]:
        """The jobs that still wait for one of these chains."""
        filter = {"chain_id": {"$in": chains}, "done": False}
        edges = yield Request(self.context.edges, "find", (filter, {"job": 1, "chain_id": 1}))
        live = {"_id": {"$in": [edge["job"] for edge in edges]}, "state": {"$in": sorted(LIVE)}}
        rows = (
            (yield self.context.find_jobs(live, {"type": 1, "chain_id": 1}, size=len(edges), alone=False))
            if edges
            else ()
        )
        jobs = {row["_id"]: row for row in rows}
        return [
            Waiting(edge["chain_id"], job["_id"], job["type"], chain_of(job))
            for edge in edges
            if (job := jobs.get(edge["job"]))
        ]

    def _remove(self, gone: Sequence[Document]) -> Operation[None]:
        """Delete jobs with their keys and edges; the next jobs of their order keys become heads."""
        ids = [document["_id"] for document in gone]
        yield Request(self.context.jobs, "delete_many", ({"_id": {"$in": ids}},))
        yield Request(self.context.keys, "delete_many", ({"job_id": {"$in": ids}},))
        yield Request(self.context.edges, "delete_many", ({"job": {"$in": ids}},))
        yield from self.tallies.uncount([document for document in gone if document["state"] in FINISHED])
        queues = yield from self.order_keys.promote({order_key_of(one) for one in gone if one.get("lane") == HEAD})
        yield from self.context.hint([Hint("ready", queue) for queue in queues])


def refusals(chains: Mapping[UUID, Sequence[Document]], dependents: Sequence[Waiting]) -> dict[UUID, Change]:
    """The chains that must stay, and with each of them the chains that it waits for."""
    refused = {
        chain: Change(chain, False, RUNNING) for chain, members in chains.items() if members[-1]["state"] == RUNNING
    }
    while True:
        more = {
            one.awaited: Change(
                one.awaited, False, chains[one.awaited][-1]["state"], None, f"job {one.id} ({one.type}) waits for it"
            )
            for one in dependents
            if one.awaited not in refused and (one.chain not in chains or one.chain in refused)
        }
        if not more:
            return refused
        refused |= more


def answer(id: UUID, document: Document | None, refused: Mapping[UUID, Change]) -> Change:
    if document is None:
        return Change(id, False, None)
    why = refused.get(chain_of(document))
    if why is not None:
        return Change(id, False, why.state, document["queue"], why.reason)
    return Change(id, True, document["state"], document["queue"])

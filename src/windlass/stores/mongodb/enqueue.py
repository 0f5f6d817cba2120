"""Enqueue, in three ways. Jobs with new ids and no key are inserted. One job with an id that may exist, or with a key,
is upserted outside a transaction, where the server itself waits for a key that another transaction holds. A batch of
such jobs, or a job whose key outlives it, is read and written in one transaction.

The blockers of a job are edges, inserted with it. Enqueue writes neither on those blockers nor on other jobs of its
order key: admission does. So an enqueue in the caller's transaction delays no other client.

A transaction reads from one snapshot. A key that is free there is free, or the write ends in a write conflict, never in
a duplicate-key error: that would end the caller's transaction without a label that asks for another try.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import Any, TypeAlias
from uuid import UUID

from pymongo import InsertOne, ReplaceOne, ReturnDocument, UpdateOne

from ...errors import Conflict
from ...job import NewJob
from ...lifecycle import BLOCKED, COMPLETED, PENDING
from ...operation import Operation, Request, Transient
from ..blockers import with_chains
from ..store import Enqueued
from .context import Part
from .documents import HELD_BY_JOB, Document, Documents, add, chain_of, round_up
from .errors import Duplicate

WAITING = (PENDING, BLOCKED)  # a job that has begun cannot be replaced
RECORD = ("tenant", "scope", "key")  # the fields in the id of a key's record
HELD_KEY = ("tenant", "unique_scope", "unique_key", "unique_held")
TRIES = 10  # for a key whose holder vanishes after each read

Key: TypeAlias = tuple[str, str, str]  # tenant, scope and key
Holders: TypeAlias = dict[tuple[bool, str, str, str], Document]  # whether it is a record, tenant, scope, key


class Enqueue(Part):
    """Operations `enqueue` and `free_own_key`; it answers the questions of `ChainLookup`."""

    def enqueue(self, jobs: Sequence[NewJob], *, resent: bool = False) -> Operation[list[Enqueued]]:
        if not jobs:
            return []
        if any(new.blockers for new in jobs):
            jobs = yield from with_chains(jobs, self)
        plain = not resent and not any(new.id_given or new.unique_key is not None for new in jobs)
        if plain and len({new.id for new in jobs}) == len(jobs):
            return (yield from self._insert(jobs))
        if len(jobs) == 1 and not needs_more(jobs[0]):
            return [(yield from self._upsert(jobs[0], resent))]
        return (yield from self._resolve(jobs))

    def free_own_key(self, id: UUID, token: UUID, scope: str, key: str) -> Operation[None]:
        own = {"_id": id, "token": token, "unique_scope": scope, "unique_key": key, "unique_held": True}
        yield Request(self.context.jobs, "update_one", (own, {"$set": {"unique_held": False}}))

    def chains_of(self, ids: Collection[UUID]) -> Operation[dict[UUID, UUID]]:
        rows = yield self.context.find_jobs({"_id": {"$in": [*ids]}}, {"chain_id": 1}, size=len(ids))
        return {row["_id"]: chain_of(row) for row in rows}

    def awaited_by(self, chains: Collection[UUID]) -> Operation[set[UUID]]:
        rows = yield self.context.find_chains([*chains], {"state": 1}, alone=False)
        blocked = [row["_id"] for row in rows if row["state"] == BLOCKED]
        edges = (yield self.context.find_open_edges(blocked, alone=False)) if blocked else ()
        return {edge["chain_id"] for edge in edges}

    def lock_cycle_check(self) -> Operation[None]:
        yield Request(self.context.migrations, "update_one", ({"_id": 1}, {"$inc": {"circles_sought": 1}}))

    def _add_edges(self, jobs: Sequence[NewJob]) -> Operation[None]:
        edges = [
            {"job": new.id, "position": position, "chain_id": chain, "done": False}
            for new in jobs
            for position, chain in enumerate(new.blockers)
        ]
        if edges:
            yield Request(self.context.edges, "insert_many", (edges,), {"ordered": False})

    # New ids, no keys

    def _insert(self, jobs: Sequence[NewJob]) -> Operation[list[Enqueued]]:
        """One document is atomic by itself; many, or one with edges, need a transaction."""
        now = yield from self.context.read_now()
        documents = [self.context.documents.to_document(new, now) for new in jobs]
        alone = len(documents) == 1 and not jobs[0].blockers
        yield Request(self.context.jobs, "insert_many", (documents,), {"ordered": False}, alone)
        yield from self._add_edges(jobs)
        return [Enqueued(self.context.documents.to_job(document), True) for document in documents]

    # One job

    def _upsert(self, new: NewJob, resent: bool) -> Operation[Enqueued]:
        now = yield from self.context.read_now()
        document = self.context.documents.to_document(new, now)
        keyed = "unique_held" in document
        same = {name: document[name] for name in (HELD_KEY if keyed else ("_id",))}
        for _ in range(TRIES):
            if keyed and (new.id_given or resent):
                known = yield self.context.find_jobs({"_id": new.id}, size=1)
                if known:
                    return Enqueued(self.context.documents.to_job(known[0], created=False), False)
            change = {"$setOnInsert": document}
            try:
                (result,) = yield Request(self.context.jobs, "update_one", (same, change), {"upsert": True}, alone=True)
            except Duplicate:
                continue
            if result.upserted_id is not None:
                return Enqueued(self.context.documents.to_job(document), True)
            holder = yield from self._yield_to_holder(new, same, now)
            if holder is not None:
                return Enqueued(self.context.documents.to_job(holder, created=False), False)
        raise Transient(f"the holder of the unique key {new.unique_key!r} changed each time we looked")

    def _yield_to_holder(self, new: NewJob, same: Document, now: datetime) -> Operation[Document | None]:
        """The existing job, replaced if the new one asks for it; None where it is gone meanwhile."""
        found: Sequence[Any] = yield self.context.find_jobs(same, size=1)
        if not found:
            return None
        if new.on_conflict == "raise" and found[0]["_id"] != new.id:
            raise conflict(new, found[0]["_id"])
        if new.on_conflict == "replace" and found[0]["state"] in WAITING:
            filter = {"_id": found[0]["_id"], "unique_held": True, "state": {"$in": WAITING}}
            filter["lane"] = found[0].get("lane")
            options = {"return_document": ReturnDocument.AFTER}
            update = rewrite(self.context.documents.replaced(new, found[0], now))
            found = yield Request(self.context.jobs, "find_one_and_update", (filter, update), options, alone=True)
        return found[0]  # type: ignore[no-any-return]

    # Many jobs, or keys that outlive them

    def _resolve(self, jobs: Sequence[NewJob]) -> Operation[list[Enqueued]]:
        now = yield from self.context.read_now()
        ids = [new.id for new in jobs]
        known = yield self.context.find_jobs({"_id": {"$in": ids}}, size=len(ids), alone=False)
        holders = yield from self._holders(jobs, now)
        batch = Batch(self.context.documents, now, {document["_id"]: document for document in known}, holders)
        answers = [batch.add(new) for new in jobs]
        if batch.writes:
            yield Request(self.context.jobs, "bulk_write", (list(batch.writes.values()),), {"ordered": False})
        if batch.records:
            yield Request(self.context.keys, "bulk_write", (batch.records,), {"ordered": False})
        waiting = [new.id for new in batch.added if new.blockers]
        if waiting:  # an earlier job of that id with keep=0 may have left edges
            yield Request(self.context.edges, "delete_many", ({"job": {"$in": waiting}},))
        yield from self._add_edges(batch.added)
        return [
            Enqueued(self.context.documents.to_job(document, created=created), created) for document, created in answers
        ]

    def _holders(self, jobs: Sequence[NewJob], now: datetime) -> Operation[Holders]:
        """The jobs that hold the keys of these jobs."""
        by_scope: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        records: set[Key] = set()
        for new in jobs:
            if has_record(new):
                records.add(key_of(new))
            elif new.unique_key is not None:
                by_scope[new.tenant, new.unique_scope].add(new.unique_key)
        holders: Holders = {}
        for (tenant, scope), keys in sorted(by_scope.items()):
            for document in (yield self.context.find_jobs(held(tenant, scope, keys), size=len(keys), alone=False)):
                holders[False, tenant, scope, document["unique_key"]] = document
        if records:
            holders |= yield from self._recorded_holders(sorted(records), now)
        return holders

    def _recorded_holders(self, keys: Sequence[Key], now: datetime) -> Operation[Holders]:
        filter = {"_id": {"$in": [record_id(*key) for key in keys]}}
        found = yield Request(self.context.keys, "find", (filter,), {"batch_size": len(keys) + 1})
        records = [record for record in found if record.get("ends_at") is None or record["ends_at"] > now]
        ids = [record["job_id"] for record in records]
        rows = yield self.context.find_jobs({"_id": {"$in": ids}}, size=len(ids), alone=False)
        documents = {row["_id"]: row for row in rows}
        return {
            (True, *(record["_id"][name] for name in RECORD)): documents.get(record["job_id"]) or bygone(record)
            for record in records
        }


class Batch:
    """New jobs, added one after the other to the existing ones without I/O; `writes` and `records` are the result."""

    def __init__(self, documents: Documents, now: datetime, known: dict[UUID, Document], holders: Holders) -> None:
        self.documents, self.now, self.known, self.holders = documents, now, known, holders
        self.writes: dict[UUID, InsertOne[Any] | UpdateOne] = {}
        self.records: list[ReplaceOne[Any]] = []
        self.added: list[NewJob] = []

    def add(self, new: NewJob) -> tuple[Document, bool]:
        """The document of this job, or of the existing one."""
        key = (has_record(new), *key_of(new))
        if new.id in self.known:
            # Jobs of the batch with the same key get it as their answer again, though its key may be free by now.
            if new.unique_key is not None:
                self.holders[key] = self.known[new.id]
            return self.known[new.id], False
        if new.unique_key is not None and key in self.holders:
            return self._yield_to(self.holders[key], new), False
        document = self.known[new.id] = self.documents.to_document(new, self.now)
        self.writes[new.id] = InsertOne(document)
        self.added.append(new)
        if new.unique_key is not None:
            self.holders[key] = document
        if has_record(new):
            self.records.append(self._record(new))
        return document, True

    def _yield_to(self, holder: Document, new: NewJob) -> Document:
        if new.on_conflict == "raise" and holder["_id"] != new.id:
            raise conflict(new, holder["_id"])
        if new.on_conflict == "replace" and holder.get("unique_held") and holder["state"] in WAITING:
            changes = self.documents.replaced(new, holder, self.now)
            holder.update(changes)
            for name in [name for name, value in changes.items() if value is None]:
                del holder[name]
            if not isinstance(self.writes.get(holder["_id"]), InsertOne):
                self.writes[holder["_id"]] = UpdateOne({"_id": holder["_id"]}, rewrite(changes))
        return holder

    def _record(self, new: NewJob) -> ReplaceOne[Any]:
        """The record of a key. It has the answer for later jobs when this job is gone."""
        id = record_id(*key_of(new))
        record = {"_id": id, "job_id": new.id, "type": new.type, "queue": new.queue, "created_at": self.now}
        if new.window_seconds is not None:
            record["ends_at"] = round_up(add(self.now, new.window_seconds))
        return ReplaceOne({"_id": id}, record, upsert=True)


def has_record(new: NewJob) -> bool:
    """Whether its key outlives it, in a separate record."""
    return new.unique_key is not None and new.unique_until not in HELD_BY_JOB


def needs_more(new: NewJob) -> bool:
    """Whether one upsert is not enough: it writes one document, and the server fills in no `arrival`."""
    return has_record(new) or bool(new.blockers) or new.order_key is not None


def key_of(new: NewJob) -> Key:
    return new.tenant, new.unique_scope, new.unique_key or ""


def record_id(*key: str) -> Document:
    """The scope comes last, since some reads look for a key in all scopes."""
    tenant, scope, text = key
    return {"tenant": tenant, "key": text, "scope": scope}


def held(tenant: str, scope: str, keys: Iterable[str]) -> Document:
    """A filter for the jobs that hold these keys."""
    return {"tenant": tenant, "unique_scope": scope, "unique_key": {"$in": sorted(keys)}, "unique_held": True}


def conflict(new: NewJob, holder: UUID) -> Conflict:
    return Conflict(f"the unique key {new.unique_key!r} belongs to job {holder}")


def rewrite(changes: Document) -> Document:
    update: Document = {"$set": {name: value for name, value in changes.items() if value is not None}}
    update["$inc"] = {"revision": 1}
    gone = [name for name, value in changes.items() if value is None]
    return update | ({"$unset": dict.fromkeys(gone, "")} if gone else {})


def bygone(record: Document) -> Document:
    """A deleted job whose key is still held: the part of it that the record of the key has."""
    created_at = record["created_at"]
    return {
        "_id": record["job_id"],
        "state": COMPLETED,
        "queue": record["queue"],
        "type": record["type"],
        "tenant": record["_id"]["tenant"],
        "unique_key": record["_id"]["key"],
        "rank": 0,
        "run_at": created_at,
        "created_at": created_at,
        "attempt": 0,
        "input": "{}",
    }

"""Actions on jobs and queues: cancel, retry, run now, pause, resume."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from pymongo import UpdateOne

from ...lifecycle import BLOCKED, CANCELLED, PENDING, RUNNING, Event, State, allows
from ...operation import Operation, Request
from ...outcome import Settlement
from ..store import Change
from .context import Context, Part
from .documents import Document, run_at_of, to_line
from .enqueue import Key, held
from .settle import Settlements
from .tallies import Tallies

# Fields that a retried job loses. Its error stays, and explains the retry.
OF_ITS_END = (
    *("finished_at", "purge_at", "output", "token", "previous_token", "worker", "claimed_at", "expires_at"),
    "counted_by",
)


class Actions(Part):
    """Operations `cancel`, `retry`, `run_now`, `pause`, `resume`."""

    def __init__(self, context: Context, settlements: Settlements, tallies: Tallies) -> None:
        super().__init__(context)
        self.settlements, self.tallies = settlements, tallies

    def cancel(self, ids: Sequence[UUID]) -> Operation[list[Change]]:
        documents, now = yield from self.context.read_brief(ids)
        changes = refused(ids, documents)
        waiting: list[tuple[Settlement, Document]] = []
        running: list[UUID] = []
        for id, document in allowed("cancel", documents):
            if document["state"] == RUNNING:
                running.append(id)
                changes[id] = change(document, RUNNING)
            else:
                waiting.append((Settlement(id=id, token=None, state=CANCELLED), document))
                changes[id] = change(document, CANCELLED)
        if running:
            noted = {"$set": {"cancel_requested": True}}
            yield Request(self.context.jobs, "update_many", ({"_id": {"$in": running}, "state": RUNNING}, noted))
        yield from self.settlements.write_endings(waiting, now)
        return [changes[id] for id in ids]

    def retry(self, ids: Sequence[UUID]) -> Operation[list[Change]]:
        documents, now = yield from self.context.read_brief(ids)
        changes = refused(ids, documents)
        candidates = list(allowed("bring back", documents))
        taken = yield from self._held_keys(document for _, document in candidates)
        done = yield from self._blockers_done([id for id, _ in candidates])
        writes: list[UpdateOne] = []
        gone: list[Document] = []
        for id, document in candidates:
            key = key_to_hold(document)
            if key in taken:
                continue
            if key is not None:
                taken.add(key)
            gone.append(document)
            update = retried(document, now, done.get(id))
            writes.append(UpdateOne({"_id": id, "state": document["state"]}, update))
            changes[id] = change(document, update["$set"]["state"])
        if writes:
            yield Request(self.context.jobs, "bulk_write", (writes,), {"ordered": False})
            yield from self.tallies.uncount(gone)
        return [changes[id] for id in ids]

    def _blockers_done(self, ids: Sequence[UUID]) -> Operation[dict[UUID, bool]]:
        """For each job that has waited for chains: whether all of them are done."""
        pipeline = [
            {"$match": {"job": {"$in": [*ids]}}},
            {"$group": {"_id": "$job", "done": {"$min": "$done"}}},
        ]
        rows = (yield Request(self.context.edges, "aggregate", (pipeline,))) if ids else ()
        return {row["_id"]: row["done"] for row in rows}

    def _held_keys(self, documents: Iterable[Document]) -> Operation[set[Key]]:
        """The keys of these jobs that other jobs hold by now."""
        by_scope: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
        for key in map(key_to_hold, documents):
            if key is not None:
                by_scope[key[:2]].append(key[2])
        taken: set[Key] = set()
        for (tenant, scope), keys in by_scope.items():
            rows = yield self.context.find_jobs(
                held(tenant, scope, keys), {"unique_key": 1}, size=len(keys), alone=False
            )
            taken |= {(tenant, scope, row["unique_key"]) for row in rows}
        return taken

    def run_now(self, ids: Sequence[UUID]) -> Operation[list[Change]]:
        documents, now = yield from self.context.read_brief(ids)
        changes = refused(ids, documents)
        waiting: defaultdict[str, list[UUID]] = defaultdict(list)
        for id, document in allowed("run now", documents):
            changes[id] = change(document, document["state"])
            if run_at_of(document) > now:  # a job that is due keeps its place
                waiting["run_at" if "run_at" in document else "due_at"].append(id)
        for name, those in waiting.items():
            yield Request(self.context.jobs, "update_many", ({"_id": {"$in": those}}, {"$set": {name: now}}))
        return [changes[id] for id in ids]

    def pause(self, queue: str) -> Operation[None]:
        yield self._set_paused(queue, True)

    def resume(self, queue: str) -> Operation[None]:
        yield self._set_paused(queue, False)

    def _set_paused(self, queue: str, paused: bool) -> Request:
        change = {"$set": {"paused": paused}}
        return Request(self.context.queues, "update_one", ({"_id": queue}, change), {"upsert": True}, alone=True)


def allowed(event: Event, documents: dict[UUID, Document]) -> Iterable[tuple[UUID, Document]]:
    return ((id, document) for id, document in documents.items() if allows(event, document["state"]))


def refused(ids: Sequence[UUID], documents: dict[UUID, Document]) -> dict[UUID, Change]:
    """The answers for jobs that allow no change; the answers for the others are overwritten."""
    answers = {}
    for id in ids:
        document = documents.get(id)
        answers[id] = Change(id, False, document["state"], document["queue"]) if document else Change(id, False, None)
    return answers


def change(document: Document, state: State) -> Change:
    return Change(document["_id"], True, state, document["queue"])


def key_to_hold(document: Document) -> Key | None:
    """The key that the job holds again after a retry. A key until `claimed` is not held again."""
    if document.get("unique_key") is None or document.get("unique_until") != "finished":
        return None
    return document["tenant"], document.get("unique_scope", ""), document["unique_key"]


def retried(document: Document, now: datetime, done: bool | None) -> Document:
    """The change that retries a job. The tokens are removed, so that later writes of old workers are refused. `done`:
    whether all chains that it waits for are done; None: it waits for none. Jobs that wait for its chain stay linked."""
    blocked = done is False
    changes: dict[str, Any] = {"state": BLOCKED if blocked else PENDING, "attempt": 0, "run_at": now}
    update: Document = {"$set": changes, "$unset": dict.fromkeys(OF_ITS_END, ""), "$inc": {"revision": 1}}
    if key_to_hold(document) is not None:
        changes["unique_held"] = True
    if done:
        changes["blockers_left"] = 0
    if blocked:
        changes["arriving"] = "blocked"
    if document.get("order_key") is not None:
        changes |= to_line(changes.pop("run_at"), blocked=blocked)
        update["$unset"]["run_at"] = ""
        update["$currentDate"] = {"arrival": {"$type": "timestamp"}}
    return update

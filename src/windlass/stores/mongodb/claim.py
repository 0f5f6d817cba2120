"""Claims: read due jobs, then write a new token on those that are still as they were read.

Each document is updated atomically and by one claimer only. So the token makes a batch safe, and no transaction is
needed. If all jobs that were read could be taken, the result is known without another read. If other claimers were
quicker, the jobs with the token are read back, and the claim looks for more jobs further on.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from pymongo import UpdateMany

from ...errors import StoreUnavailable
from ...job import Job
from ...lifecycle import PENDING, RUNNING
from ...operation import Operation, Request, Transient
from ...policy import UNLIMITED, Policy, filled_in, is_partial
from ..store import ClaimRequest, Position
from .context import Brief, Fresh, Part
from .documents import Document, round_up, to_key
from .skip_locked import by_halves

ROUNDS = 8  # reads of one claim, where other claimers take the jobs that it has found
LOOK_AHEAD = 150  # jobs, at least, in each read after the first: about a thousand in all
ORDER = [("rank", 1), ("run_at", 1), ("_id", 1)]
POLICY_FIELDS = ("max_attempts", "lease_seconds", "keep_seconds", "policy")


class Claims(Part):
    """Operations `claim` and `adopt`."""

    def claim(self, request: ClaimRequest) -> Operation[list[Job]]:
        now = yield from self.context.open_at(request.queue)
        if now is None or request.limit < 1:
            return []
        taken: list[Document] = []
        certain = True
        room, bytes_left, after = request.limit, request.max_bytes, request.after
        page = room
        for _ in range(ROUNDS):
            found = yield self._find_due(request, now, page, after)
            chosen, full = choose(found, request, room, bytes_left, at_least_one=not taken)
            try:
                count = (yield from self._take(request, chosen, now)) if chosen else 0
            except (StoreUnavailable, Transient):
                count, certain = (yield from self._take_unlocked(request, chosen, now)), False
            certain = certain and count == len(chosen)
            taken += chosen
            seen_all = len(found) < page and len(chosen) < room
            if count == room or full or seen_all:
                break
            # Other claimers were quicker, or these are last attempts, which must not wait in a buffer: look further on.
            last = chosen[-1] if len(chosen) == room else found[-1]
            after = Position(last["rank"], last["run_at"], last["_id"])
            bytes_left -= sum(map(size_of, chosen))
            room -= count
            page = max(room, LOOK_AHEAD)
        if not taken:
            return []
        if not certain:
            return (yield from self.adopt(request.token))
        return [self.context.documents.to_job(document) for document in taken]

    def adopt(self, token: UUID) -> Operation[list[Job]]:
        # A write of a moment ago, over a connection that broke, may not have reached a majority yet.
        find = self.context.find_jobs({"state": RUNNING, "token": token}, size=1000)
        rows = yield Fresh(find.collection, find.method, find.arguments, find.options, find.alone)
        return [
            self.context.documents.to_job(row)
            for row in sorted(rows, key=lambda row: (row["rank"], row["run_at"], row["_id"]))
        ]

    def _find_due(self, request: ClaimRequest, now: datetime, limit: int, after: Position | None) -> Request:
        """In the order of the ready index, from the position of the claimer: one batch, so no more than 16 MB."""
        filter: Document = {"queue": request.queue, "state": PENDING, "run_at": {"$lte": now}}
        filter["expires_at"] = {"$not": {"$lte": now}}  # or the job has none
        if request.types is not None:
            filter["type"] = {"$in": list(request.types)}
        if request.order_key is not None:
            filter |= {"order_key": request.order_key, "lane": 2}
            if request.tenant is not None:
                filter["tenant"] = request.tenant
        if after is not None:
            here = {"rank": after.rank, "run_at": after.run_at}
            filter["$or"] = [
                {**here, "_id": {"$gt": after.id}},
                {"rank": after.rank, "run_at": {"$gt": after.run_at}},
                {"rank": {"$gt": after.rank}},
            ]
        return Request(
            self.context.jobs, "find", (filter,), {"sort": ORDER, "limit": -limit, "batch_size": limit}, alone=True
        )

    def _take_unlocked(self, request: ClaimRequest, chosen: Sequence[Document], now: datetime) -> Operation[int]:
        """The driver does not repeat such a write. The jobs that have the token show how far it came. The others may
        stand behind a document that another transaction has locked; they are taken without waiting for it."""
        taken = {job.id for job in (yield from self.adopt(request.token))}
        left = [one for one in chosen if one["_id"] not in taken]
        counts, _ = yield from by_halves(left, lambda some: self._take(request, some, now))
        return len(chosen) - len(left) + sum(counts)

    def _take(self, request: ClaimRequest, chosen: Sequence[Document], now: datetime) -> Operation[int]:
        """Write the token, in the database and on these documents; the number of jobs that were still as they were
        read."""
        groups: defaultdict[Kind, list[Document]] = defaultdict(list)
        for document in chosen:
            groups[kind_of(document, request)].append(document)
        writes: list[UpdateMany] = []
        written: list[tuple[Document, Document]] = []
        for kind, documents in groups.items():
            changes = claimed(kind, request, now)
            fence: Document = {
                "_id": {"$in": [to_key(document["_id"]) for document in documents]},
                "state": PENDING,
                "revision": kind.revision,  # None: has none
            }
            if kind.expires:
                fence["$expr"] = {"$gt": ["$expires_at", self.context.now_expression]}
            writes.append(UpdateMany(fence, {"$set": changes, "$inc": {"attempt": 1}}, hint="_id_"))
            written += [(document, changes) for document in documents]
        (result,) = yield Brief(self.context.jobs, "bulk_write", (writes,), {"ordered": False}, alone=True)
        for document, changes in written:
            document.update(changes)
            document["attempt"] += 1
        return int(result.matched_count)


class Kind(NamedTuple):
    """The properties of jobs that get the same change by a claim. `type` is set where it decides the policy."""

    revision: int | None
    lease_seconds: float | None
    type: str | None
    missing: tuple[str, ...]
    partial: str | None
    frees_key: bool
    expires: bool
    is_to_begin: bool


def kind_of(document: Document, request: ClaimRequest) -> Kind:
    get = document.get
    partial = details if is_partial(details := get("policy")) else None
    known = get("lease_seconds") is not None and partial is None
    missing = () if known else tuple(name for name in POLICY_FIELDS if get(name) is None)
    return Kind(
        get("revision"),
        get("lease_seconds"),
        None if known else document["type"],
        missing,
        partial,
        get("unique_until") == "claimed",
        "expires_at" in document,
        not request.begun and is_last_attempt(document, request),
    )


def claimed(kind: Kind, request: ClaimRequest, now: datetime) -> Document:
    """The change on jobs of one kind. A job that was enqueued by name alone gets the fields of its policy now, once,
    from the claimer's policy for its type."""
    policy = policy_of(kind.type or "", request)
    seconds = request.lease_seconds or kind.lease_seconds or policy.lease_seconds
    found = ((name, setting(name, policy)) for name in kind.missing)
    changes: Document = {name: value for name, value in found if value is not None} | {
        "state": RUNNING,
        "token": request.token,
        "worker": request.worker,
        "claimed_at": now,
        "leased_until": round_up(now + timedelta(seconds=seconds)),
    }
    if kind.partial is not None:
        changes["policy"] = filled_in(kind.partial, policy.details_json())
    if kind.frees_key:
        changes["unique_held"] = False
    if kind.is_to_begin:
        changes["begun"] = False
    return changes


def choose(
    found: Sequence[Document], request: ClaimRequest, room: int, bytes_left: int, *, at_least_one: bool
) -> tuple[list[Document], bool]:
    """The jobs that may be taken, in order, as many as there is room for and as far as their inputs fit (the first
    always does); and whether the bytes were the limit."""
    chosen: list[Document] = []
    for one in found:
        if len(chosen) == room:
            break
        if request.prefetch and is_last_attempt(one, request):
            continue
        bytes_left -= size_of(one)
        if bytes_left < 0 and (chosen or not at_least_one):
            return chosen, True
        chosen.append(one)
    return chosen, False


def size_of(document: Document) -> int:
    text: str = document["input"]
    return len(text) if text.isascii() else len(text.encode())


def policy_of(type: str, request: ClaimRequest) -> Policy:
    return request.policies.get(type, request.default_policy)


def setting(name: str, policy: Policy) -> Any:
    if name == "policy":
        return policy.details_json()
    return getattr(policy, name)


def is_last_attempt(document: Document, request: ClaimRequest) -> bool:
    max_attempts = document.get("max_attempts")
    if max_attempts is None:
        max_attempts = policy_of(document["type"], request).max_attempts
    return bool(max_attempts != UNLIMITED and document["attempt"] + 1 >= max_attempts)

"""Taking jobs: read what is due, then write a fresh token on it, where it still is what was read.

Each document is updated atomically and by one claimer only, so the token is what makes a batch safe; no transaction
is needed. Where all that was read could be taken, what was read and what was written are the jobs. Where others were
quicker, what bears the token is read back, and more is looked for further on.
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

ROUNDS = 8  # looks for one claim, where others take what it has found
LOOK_AHEAD = 150  # jobs, at the least, in each look after the first: about a thousand in all
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
            # Others were quicker, or these are last attempts and not for a buffer: look further on.
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
        # What was written a moment ago, over a connection that broke, may not have reached a majority yet.
        find = self.context.find_jobs({"state": RUNNING, "token": token}, size=1000)
        rows = yield Fresh(find.collection, find.method, find.arguments, find.options, find.alone)
        return [
            self.context.documents.to_job(row)
            for row in sorted(rows, key=lambda row: (row["rank"], row["run_at"], row["_id"]))
        ]

    def _find_due(self, request: ClaimRequest, now: datetime, limit: int, after: Position | None) -> Request:
        """In the order of the ready index, from where the claimer left off: one batch, so no more than 16 MB."""
        filter: Document = {"queue": request.queue, "state": PENDING, "run_at": {"$lte": now}}
        filter["expires_at"] = {"$not": {"$lte": now}}  # or it has none
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
        """The driver does not send such a write twice. Whether it was made shows in what bears our token; what does not
        may stand behind a document that another transaction has locked, and is taken without waiting for that."""
        taken = {job.id for job in (yield from self.adopt(request.token))}
        left = [one for one in chosen if one["_id"] not in taken]
        counts, _ = yield from by_halves(left, lambda some: self._take(request, some, now))
        return len(chosen) - len(left) + sum(counts)

    def _take(self, request: ClaimRequest, chosen: Sequence[Document], now: datetime) -> Operation[int]:
        """Write the token, here and there; how many were still as they were read."""
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
    """What jobs have in common on which a claim writes the same: the type counts where that decides the policy."""

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
    """What is written on jobs of one kind. A job that was enqueued by name alone gets its policy now, from what the
    claimer knows of its type: what it lacks, once and for all."""
    policy = policy_of(kind.type or "", request)
    seconds = request.lease_seconds or kind.lease_seconds or policy.lease_seconds
    changes: Document = {name: setting(name, policy) for name in kind.missing} | {
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
    """Those that may be taken, in order, as many as there is room for and as far as their inputs fit (the first
    always does); and whether it was the bytes that ended it."""
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

"""Taking jobs: find their ids, write a fresh token on those that are still free, read back what bears the token.

Each document is updated atomically and by one claimer only, so the token is what makes a batch safe; no transaction
is needed. Only what others took in between is missed, and looked for further on.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import msgspec

from ...errors import StoreUnavailable
from ...job import Job
from ...lifecycle import PENDING, RUNNING
from ...operation import Operation, Request
from ...policy import UNLIMITED, Policy
from ..store import ClaimRequest, Position
from .base import Base
from .documents import Document, to_job

ROUNDS = 8  # looks for one claim, where others take what it has found
LOOK_AHEAD = 150  # jobs, at the least, in each look after the first: about a thousand in all
FAR_FUTURE = datetime(9999, 12, 31, tzinfo=UTC)
ORDER = [("rank", 1), ("run_at", 1), ("_id", 1)]
POLICY_FIELDS = ("max_attempts", "lease_seconds", "keep_seconds", "policy")
FOUND = {
    **dict.fromkeys(("rank", "run_at", "type", "attempt", "unique_until", *POLICY_FIELDS), 1),
    "bytes": {"$strLenBytes": "$input"},
}


class Claims(Base):
    def claim(self, request: ClaimRequest) -> Operation[list[Job]]:
        paused = yield Request(self.queues, "find", ({"_id": request.queue, "paused": True},), alone=True)
        if paused or request.limit < 1:
            return []
        ids: list[UUID] = []
        room, bytes_left, after = request.limit, request.max_bytes, request.after
        page = room
        for _ in range(ROUNDS):
            found = yield self._find_due(request, page, after)
            chosen, full = choose(found, request, room, bytes_left, at_least_one=not ids)
            taken = (yield from self._take(request, chosen)) if chosen else 0
            ids += [one["_id"] for one in chosen]
            if taken == room or full or len(found) < page:
                break
            # Others were quicker, or these are last attempts and not for a buffer: look further on.
            last = chosen[-1] if len(chosen) == room else found[-1]
            after = Position(last["rank"], last["run_at"], last["_id"])
            bytes_left -= sum(one["bytes"] for one in chosen)
            room -= taken
            page = max(room, LOOK_AHEAD)
        if not ids:
            return []
        rows = yield self.find_jobs({"_id": {"$in": ids}, "token": request.token}, size=len(ids))
        return in_order(rows)

    def adopt(self, token: UUID) -> Operation[list[Job]]:
        rows = yield self.find_jobs({"state": RUNNING, "token": token}, size=1000)
        return in_order(rows)

    def _find_due(self, request: ClaimRequest, limit: int, after: Position | None) -> Request:
        """In the order of the ready index, from where the claimer left off."""
        filter: Document = {"queue": request.queue, **self._due()}
        if request.types is not None:
            filter["type"] = {"$in": list(request.types)}
        if after is not None:
            here = {"rank": after.rank, "run_at": after.run_at}
            filter["$or"] = [
                {**here, "_id": {"$gt": after.id}},
                {"rank": after.rank, "run_at": {"$gt": after.run_at}},
                {"rank": {"$gt": after.rank}},
            ]
        options = {"sort": ORDER, "limit": limit, "batch_size": limit + 1}
        return Request(self.jobs, "find", (filter, FOUND), options, alone=True)

    def _due(self) -> Document:
        """`state` and `run_at` by the index, whatever else by looking at the document."""
        now = self.now_expression
        in_time = {"$gt": [{"$ifNull": ["$expires_at", FAR_FUTURE]}, now]}
        return {"state": PENDING, "$expr": {"$and": [{"$lte": ["$run_at", now]}, in_time]}}

    def _take(self, request: ClaimRequest, chosen: Sequence[Document]) -> Operation[int]:
        """Write the token; how many were still free. What can be missed between finding and writing is asked anew."""
        filter = {"_id": {"$in": [one["_id"] for one in chosen]}, **self._due()}
        if request.prefetch:
            filter["$expr"]["$and"].append(more_attempts(request, chosen))
        update = [{"$set": self._claimed(request, chosen)}]
        try:
            (result,) = yield Request(self.jobs, "update_many", (filter, update), alone=True)
        except StoreUnavailable:
            # The driver does not send an update_many twice. Whether it was made shows in what bears our token.
            return len(chosen)
        return int(result.modified_count)

    def _claimed(self, request: ClaimRequest, chosen: Sequence[Document]) -> Document:
        now = self.now_expression
        seconds = request.lease_seconds or resolved("lease_seconds", request, chosen)
        changes: Document = {
            "state": RUNNING,
            "token": request.token,
            "attempt": {"$add": ["$attempt", 1]},
            "worker": {"$literal": request.worker},
            "claimed_at": now,
            "heard_at": now,
            "leased_until": {"$add": [now, {"$multiply": [seconds, 1000]}]},
        }
        for name in POLICY_FIELDS:
            if any(one.get(name) is None for one in chosen):
                changes[name] = resolved(name, request, chosen)
        if any(one.get("unique_until") == "claimed" for one in chosen):
            changes["unique_held"] = {"$and": ["$unique_held", {"$ne": ["$unique_until", "claimed"]}]}
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
        bytes_left -= one["bytes"]
        if bytes_left < 0 and (chosen or not at_least_one):
            return chosen, True
        chosen.append(one)
    return chosen, False


def in_order(rows: Sequence[Document]) -> list[Job]:
    return [to_job(row) for row in sorted(rows, key=lambda row: (row["rank"], row["run_at"], row["_id"]))]


# A job that was enqueued by name alone gets its policy now, from what the claimer knows of its type.


def policy_of(type: str, request: ClaimRequest) -> Policy:
    return request.policies.get(type, request.default_policy)


def setting(name: str, policy: Policy) -> Any:
    if name == "policy":
        return msgspec.json.encode(policy.details()).decode()
    return getattr(policy, name)


def is_last_attempt(document: Document, request: ClaimRequest) -> bool:
    max_attempts = document.get("max_attempts")
    if max_attempts is None:
        max_attempts = policy_of(document["type"], request).max_attempts
    return max_attempts != UNLIMITED and document["attempt"] + 1 >= max_attempts


def more_attempts(request: ClaimRequest, chosen: Sequence[Document]) -> Document:
    """`not is_last_attempt`, as an expression."""
    maximum = resolved("max_attempts", request, chosen)
    return {"$or": [{"$eq": [maximum, UNLIMITED]}, {"$lt": [{"$add": ["$attempt", 1]}, maximum]}]}


def resolved(name: str, request: ClaimRequest, chosen: Sequence[Document]) -> Any:
    """The document's own value or, by its type, that of the claimer's policies."""
    missing = sorted({one["type"] for one in chosen if one.get(name) is None})
    if not missing:
        return f"${name}"
    otherwise: Any = {"$literal": setting(name, request.default_policy)}
    branches = [
        {"case": {"$eq": ["$type", {"$literal": type}]}, "then": {"$literal": setting(name, request.policies[type])}}
        for type in missing
        if type in request.policies
    ]
    if branches:
        otherwise = {"$switch": {"branches": branches, "default": otherwise}}
    return {"$ifNull": [f"${name}", otherwise]}

"""The judgement of settlements and the writes that follow: decided here, without I/O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple, TypeAlias
from uuid import UUID

from bson import ObjectId
from bson.binary import Binary
from pymongo import DeleteMany, UpdateMany

from ...lifecycle import BLOCKED, CANCELLED, FINISHED, PENDING, RUNNING, State
from ...outcome import Settlement, was_accepted
from ...policy import kept_seconds
from ..store import Reason
from .documents import Document, add, keep_seconds_of, round_up

WAITING = (PENDING, BLOCKED)
OF_WAITING = ("lane", "place", "arriving", "blockers_left")  # fields that only live jobs have
LONGEST_UPDATE = 2_000_000  # characters of at most four bytes; the last job may exceed it
LOOKED_THROUGH = 100  # different values in one update: the server searches them for each document

Accepted: TypeAlias = Literal["accepted", "accepted before"]


class Ending(NamedTuple):
    """The change that is the same for all jobs of a group."""

    token: UUID | None
    state: State
    keep_seconds: int | None
    error: str | None
    attempts: str | None
    run_at: datetime | None
    delay_seconds: float | None
    refund: int
    has_waited: bool


class Member(NamedTuple):
    """A job of a group, with the values that differ."""

    id: Binary
    output: str | None
    progress: str | None


# Judging


def judge(settlement: Settlement, document: Document | None) -> Accepted | Reason:
    """The answer of the fence. A settlement that was accepted before is sent again if its answer was lost."""
    if document is None:
        return "not found"
    state, token, previous_token = document["state"], document.get("token"), document.get("previous_token")
    if token == settlement.token and state in (WAITING if token is None else (RUNNING,)):
        return "accepted"
    if was_accepted(settlement, state=state, token=token, previous_token=previous_token):
        return "accepted before"
    return "already finished" if state in FINISHED else "taken by another"


def foresee(settlement: Settlement, document: Document) -> None:
    """Change the document as this settlement does, for the next settlement in the same batch."""
    document["state"] = final_state(settlement, document)
    if document["state"] == PENDING and settlement.token is not None:
        document["token"], document["previous_token"] = None, settlement.token


def final_state(settlement: Settlement, document: Document) -> State:
    """A job that would be pending again is cancelled if its cancellation was requested."""
    back = settlement.state == PENDING and document.get("cancel_requested", False)
    return CANCELLED if back else settlement.state


def ending_of(settlement: Settlement, document: Document) -> Ending:
    return Ending(
        settlement.token,
        final_state(settlement, document),
        keep_seconds_of(document),
        settlement.error,
        settlement.attempts,
        settlement.run_at,
        settlement.delay_seconds,
        settlement.refund,
        "lane" in document or "blockers_left" in document or "arriving" in document,
    )


def purge_moment(keep_seconds: int, now: datetime) -> datetime | None:
    """None: kept for ever, or beyond the year 9999."""
    if keep_seconds < 0:
        return None
    try:
        return now + timedelta(seconds=keep_seconds)
    except OverflowError:
        return None


# Writing


def writes_of(
    groups: Mapping[Ending, Sequence[Member]], now: datetime, *, mark: ObjectId | None = None
) -> list[UpdateMany | DeleteMany]:
    """`mark`: for the finished jobs of a write outside a transaction. Such a write ends no job that has dependents."""
    return [write_of(ending, chunk, now, mark) for ending, members in groups.items() for chunk in in_chunks(members)]


def in_chunks(members: Sequence[Member]) -> Iterator[Sequence[Member]]:
    """As many jobs as one update may have with their own values: the server takes 16 MB."""
    if alike(members):
        yield members
        return
    chunk: list[Member] = []
    length = 0
    for member in members:
        chunk.append(member)
        length += len(member.output or "") + len(member.progress or "")
        if length > LONGEST_UPDATE or len(chunk) == LOOKED_THROUGH:
            yield chunk
            chunk, length = [], 0
    if chunk:
        yield chunk


def alike(members: Sequence[Member]) -> bool:
    _, output, progress = members[0]
    return all(member.output == output and member.progress == progress for member in members)


def write_of(
    ending: Ending, members: Sequence[Member], now: datetime, mark: ObjectId | None
) -> UpdateMany | DeleteMany:
    """Fenced by id and token as a pair, and by the state: a job that is finished keeps its token."""
    fence: Document = {"_id": {"$in": [member.id for member in members]}, "token": ending.token}
    fence["state"] = {"$in": WAITING} if ending.token is None else RUNNING
    if ending.state == PENDING:
        fence["cancel_requested"] = {"$ne": True}
    if ending.state in FINISHED and mark is not None:
        fence |= {"linked": None, "lane": None}
    if ending.state in FINISHED and ending.keep_seconds == 0:
        return DeleteMany(fence, hint="_id_")
    update = finished(ending, now, mark) if ending.state in FINISHED else sent_back(ending, now)
    _, output, progress = members[0]
    if not alike(members):
        return UpdateMany(fence, with_own(update, members), hint="_id_")
    update["$set"] |= given(output=output, progress=progress)
    return UpdateMany(fence, update, hint="_id_")


def with_own(update: Document, members: Sequence[Member]) -> list[Document]:
    """The same update as a pipeline, in which each job finds its own values: one update for many is quicker than one
    for each."""
    position = {"$indexOfArray": [{"$literal": [member.id for member in members]}, "$_id"]}
    changes: Document = {name: {"$literal": value} for name, value in update["$set"].items()}
    changes |= {name: {"$add": [{"$ifNull": [f"${name}", 0]}, by]} for name, by in update.get("$inc", {}).items()}
    for name in ("output", "progress"):
        own = [getattr(member, name) for member in members]
        if any(value is not None for value in own):
            changes[name] = {"$ifNull": [{"$arrayElemAt": [{"$literal": own}, position]}, f"${name}"]}
    return [{"$set": changes}, {"$unset": list(update["$unset"])}]


def sent_back(ending: Ending, now: datetime) -> Document:
    """Pending again. `previous_token` keeps the token: the same settlement, sent again, is recognised by it."""
    changes: Document = {"state": PENDING, **given(error=ending.error, attempts=ending.attempts)}
    leftovers = ["token", "worker", "heard_at", "leased_until", "begun"]
    if ending.token is not None:
        changes["previous_token"] = ending.token
    if ending.run_at is not None:
        changes["run_at"] = max(round_up(ending.run_at), now)
    elif ending.delay_seconds is not None:
        changes["run_at"] = round_up(add(now, ending.delay_seconds))
    changed = {"revision": 1} | ({"attempt": -ending.refund} if ending.refund else {})
    return {"$set": changes, "$unset": dict.fromkeys(leftovers, ""), "$inc": changed}


def finished(ending: Ending, now: datetime, mark: ObjectId | None) -> Document:
    """Finished. The job keeps the token, as the proof that this settlement was accepted."""
    changes: Document = {"state": ending.state, "finished_at": now}
    changes |= given(
        error=ending.error,
        attempts=ending.attempts,
        purge_at=purge_moment(kept_seconds(ending.keep_seconds, ending.state), now),
        counted_by=mark,
    )
    leftovers = ["heard_at", "leased_until", "unique_held", "cancel_requested", "begun"]
    if ending.error is None:
        leftovers.append("error")
    if ending.has_waited:
        leftovers += OF_WAITING
    return {"$set": changes, "$unset": dict.fromkeys(leftovers, "")}


def given(**values: Any) -> Document:
    """The fields that have a value; the others stay unchanged."""
    return {name: value for name, value in values.items() if value is not None}

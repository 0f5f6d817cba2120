"""What is judged and written when an attempt ends: decided here, without I/O."""

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
from ...policy import DEFAULT, kept_seconds
from ..store import Reason
from .documents import Document, add, round_up

WAITING = (PENDING, BLOCKED)
OF_WAITING = ("lane", "place", "arriving", "blockers_left")  # what a job has only as long as it is live
LONGEST_UPDATE = 2_000_000  # characters, of at most four bytes; the last one's may come on top
LOOKED_THROUGH = 100  # values of their own in one update: the server looks through them for each document

Accepted: TypeAlias = Literal["accepted", "accepted before"]


class Ending(NamedTuple):
    """What is written alike on all jobs of a group."""

    token: UUID | None
    state: State
    keep_seconds: int
    keep_missing: bool
    error: str | None
    attempts: str | None
    run_at: datetime | None
    delay_seconds: float | None
    refund: int
    has_waited: bool


class Member(NamedTuple):
    """A job of a group, and what it alone says."""

    id: Binary
    output: str | None
    progress: str | None


# Judging


def judge(settlement: Settlement, document: Document | None) -> Accepted | Reason:
    """What the fence says. One that was accepted before was sent again because its answer was lost."""
    if document is None:
        return "not found"
    state, token, previous_token = document["state"], document.get("token"), document.get("previous_token")
    if token == settlement.token and state in (WAITING if token is None else (RUNNING,)):
        return "accepted"
    if was_accepted(settlement, state=state, token=token, previous_token=previous_token):
        return "accepted before"
    return "already finished" if state in FINISHED else "taken by another"


def foresee(settlement: Settlement, document: Document) -> None:
    """Let the next one in the same batch find the job as this one leaves it."""
    document["state"] = final_state(settlement, document)
    if document["state"] == PENDING and settlement.token is not None:
        document["token"], document["previous_token"] = None, settlement.token


def final_state(settlement: Settlement, document: Document) -> State:
    """A job that would come back, and that somebody wants cancelled, is cancelled."""
    back = settlement.state == PENDING and document.get("cancel_requested", False)
    return CANCELLED if back else settlement.state


def ending_of(settlement: Settlement, document: Document) -> Ending:
    keep_seconds = document.get("keep_seconds")
    if not isinstance(keep_seconds, int):  # what somebody may have left there must stop no batch
        keep_seconds = None
    return Ending(
        settlement.token,
        final_state(settlement, document),
        DEFAULT.keep_seconds if keep_seconds is None else keep_seconds,
        keep_seconds is None,
        settlement.error,
        settlement.attempts,
        settlement.run_at,
        settlement.delay_seconds,
        settlement.refund,
        "lane" in document or "blockers_left" in document or "arriving" in document,
    )


def purge_moment(keep_seconds: int, now: datetime) -> datetime | None:
    """None: kept for ever, or until after the year 9999."""
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
    """`mark`: what the finished jobs bear; it stands for a write outside a transaction, which ends no job that others
    hang on."""
    return [write_of(ending, chunk, now, mark) for ending, members in groups.items() for chunk in in_chunks(members)]


def in_chunks(members: Sequence[Member]) -> Iterator[Sequence[Member]]:
    """As many as one update may carry with what each alone says: the server takes 16 MB."""
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
    """The same update as a pipeline, in which each finds what it alone says: one for many is quicker than one for
    each."""
    position = {"$indexOfArray": [{"$literal": [member.id for member in members]}, "$_id"]}
    changes: Document = {name: {"$literal": value} for name, value in update["$set"].items()}
    changes |= {name: {"$add": [{"$ifNull": [f"${name}", 0]}, by]} for name, by in update.get("$inc", {}).items()}
    for name in ("output", "progress"):
        own = [getattr(member, name) for member in members]
        if any(value is not None for value in own):
            changes[name] = {"$ifNull": [{"$arrayElemAt": [{"$literal": own}, position]}, f"${name}"]}
    return [{"$set": changes}, {"$unset": list(update["$unset"])}]


def sent_back(ending: Ending, now: datetime) -> Document:
    """Pending again. The token moves aside, so that the same settlement, sent again, finds that it was accepted."""
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
    """Terminal. It keeps the token, and with it the proof that this settlement was accepted."""
    changes: Document = {"state": ending.state, "finished_at": now}
    changes |= given(
        error=ending.error,
        attempts=ending.attempts,
        purge_at=purge_moment(kept_seconds(ending.keep_seconds, ending.state), now),
        keep_seconds=ending.keep_seconds if ending.keep_missing else None,
        counted_by=mark,
    )
    leftovers = ["heard_at", "leased_until", "unique_held", "cancel_requested", "begun"]
    if ending.error is None:
        leftovers.append("error")
    if ending.has_waited:
        leftovers += OF_WAITING
    return {"$set": changes, "$unset": dict.fromkeys(leftovers, "")}


def given(**values: Any) -> Document:
    """What was not given stays as it was."""
    return {name: value for name, value in values.items() if value is not None}

"""A job as a document, and back. Payloads stay JSON text, so that what comes out is what went in, on each store.

A field that has no value is left out. `revision` counts how often a job that waits was changed, or came back: whoever
has read it knows by that whether it still is what he read.

A date here counts milliseconds: what says "not before" is rounded up and what says "no later than" is rounded down,
so that no job is ever due too early or claimed too late.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, TypeAlias
from uuid import UUID

from bson.binary import UUID_SUBTYPE, Binary

from ...errors import InvalidInput
from ...job import Job, NewJob
from ...lifecycle import PENDING

Document: TypeAlias = dict[str, Any]

MILLISECOND = timedelta(milliseconds=1)

# Of a new job, as it is, where it has a value.
COPIED = (
    "labels",
    "max_attempts",
    "lease_seconds",
    "keep_seconds",
    "policy",
    "unique_key",
    "unique_until",
    "trace",
)
# The kinds of uniqueness that the job's own document holds, by the partial unique index; the others have records.
HELD_BY_JOB = ("claimed", "finished")


def to_key(id: UUID) -> Binary:
    """An id as the driver would make it, but once and for all: it costs more than all else of a large filter."""
    return Binary(id.bytes, UUID_SUBTYPE)


def round_up(moment: datetime) -> datetime:
    """To whole milliseconds, not before the moment."""
    over = moment.microsecond % 1000
    try:
        return moment + timedelta(microseconds=1000 - over) if over else moment
    except OverflowError:  # the last millisecond of the year 9999
        return round_down(moment)


def round_down(moment: datetime) -> datetime:
    return moment - timedelta(microseconds=moment.microsecond % 1000)


def add(moment: datetime, seconds: float) -> datetime:
    try:
        return moment + timedelta(seconds=seconds)
    except OverflowError:
        raise InvalidInput(f"{seconds} seconds from now is beyond the year 9999") from None


def due_at(new: NewJob, now: datetime) -> datetime:
    return round_up(add(new.run_at or now, new.delay_seconds))


def expiry(new: NewJob, now: datetime) -> datetime | None:
    if new.expires_at is not None:
        return round_down(new.expires_at)
    return None if new.expires_seconds is None else round_down(add(now, new.expires_seconds))


def to_document(new: NewJob, now: datetime) -> Document:
    """The document of a new job; later issues add order_key, lane, linked, blockers_left where they have a value."""
    document: Document = {
        "_id": new.id,
        "state": PENDING,
        "queue": new.queue,
        "type": new.type,
        "tenant": new.tenant,
        "rank": new.rank,
        "run_at": due_at(new, now),
        "created_at": now,
        "attempt": 0,
        "input": new.input,
    }
    if new.chain_id is not None and new.chain_id != new.id:  # else it is the first of its chain
        document |= {"chain_id": new.chain_id, "chain_index": new.chain_index}
    for name in COPIED:
        value = getattr(new, name)
        if value is not None:
            document[name] = value
    expires_at = expiry(new, now)
    if expires_at is not None:
        document["expires_at"] = expires_at
    if new.unique_key is not None and new.unique_until in HELD_BY_JOB:
        document["unique_held"] = True
    return document


def rewritten(new: NewJob, now: datetime, created_at: datetime) -> Document:
    """What `replace` renews on the job that is there, which may be put off for so long; None: it has none any more."""
    run_at = due_at(new, now)
    if new.window_seconds is not None:
        run_at = min(run_at, round_up(add(created_at, new.window_seconds)))
    return {
        "input": new.input,
        "run_at": run_at,
        "expires_at": expiry(new, now),
        "rank": new.rank,
        "labels": new.labels,
    }


def to_job(document: Document, *, created: bool = True) -> Job:
    get = document.get
    return Job(
        document["_id"], document["type"], document["queue"], document["tenant"], document["state"], document["rank"],
        document["run_at"], document["created_at"], document["input"], document["attempt"], get("max_attempts"),
        get("lease_seconds"), get("keep_seconds"), get("policy"), get("labels"), get("error"), get("attempts"),
        get("expires_at"), get("unique_key"), get("order_key"), get("chain_id"), get("chain_index", 0), get("trace"),
        get("progress"), get("claimed_at"), get("worker"), get("leased_until"), get("cancel_requested", False),
        get("output"), get("finished_at"), created,
    )  # fmt: skip

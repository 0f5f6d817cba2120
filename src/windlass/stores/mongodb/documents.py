"""A job as a document, and back. Payloads stay JSON text, so that what comes out is what went in, on each store.

A field that has no value is left out. `revision` counts how often a job that waits was changed, or came back: whoever
has read it knows by that whether it still is what he read.

A date here counts milliseconds: what says "not before" is rounded up and what says "no later than" is rounded down,
so that no job is ever due too early or claimed too late.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, TypeAlias
from uuid import UUID

import msgspec
from bson.binary import UUID_SUBTYPE, Binary

from ...errors import InvalidInput
from ...job import AttemptRecord, Job, JobError, NewJob
from ...lifecycle import PENDING
from ...policy import Policy

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


def rewritten(new: NewJob, now: datetime) -> Document:
    """What `replace` renews on the job that is there; None: it has none any more."""
    return {
        "input": new.input,
        "run_at": due_at(new, now),
        "expires_at": expiry(new, now),
        "rank": new.rank,
        "labels": new.labels,
    }


def to_job(document: Document, *, created: bool = True) -> Job:
    get = document.get
    error, attempts, labels = get("error"), get("attempts"), get("labels")
    return Job(
        id=document["_id"],
        type=document["type"],
        queue=document["queue"],
        state=document["state"],
        run_at_raw=document["run_at"],
        created_at_raw=document["created_at"],
        input_json=document["input"],
        tenant=document["tenant"],
        priority=-document["rank"],
        output_json=get("output"),
        error=None if error is None else read_error(error),
        attempt=document["attempt"],
        policy=read_policy(get("max_attempts"), get("lease_seconds"), get("keep_seconds"), get("policy")),
        finished_at_raw=get("finished_at"),
        expires_at_raw=get("expires_at"),
        claimed_at_raw=get("claimed_at"),
        lease_expires_at_raw=get("leased_until"),
        worker=get("worker"),
        cancel_requested=get("cancel_requested", False),
        labels={} if labels is None else read_labels(labels),
        unique_key=get("unique_key"),
        order_key=get("order_key"),
        root_id=get("chain_id"),
        chain_index=get("chain_index", 0),
        attempts=() if attempts is None else read_attempts(attempts),
        trace=get("trace"),
        progress_json=get("progress"),
        created=created,
    )


@lru_cache(maxsize=1024)
def read_policy(
    max_attempts: int | None, lease_seconds: float | None, keep_seconds: int | None, details: str | None
) -> Policy | None:
    """None where nobody has said anything yet: such a job was enqueued by name alone, and not claimed."""
    if max_attempts is None:
        return None
    return Policy.from_columns(max_attempts, lease_seconds, keep_seconds, details)


# What a row says is believed where it can be read; where it cannot, it must not wedge the job. A field may have any
# type here.
NONSENSE = (msgspec.MsgspecError, TypeError)


def read_error(text: str) -> JobError:
    try:
        return msgspec.json.decode(text, type=JobError)
    except NONSENSE:
        return JobError("Error", str(text))


def read_attempts(text: str) -> Sequence[AttemptRecord]:
    try:
        return msgspec.json.decode(text, type=list[AttemptRecord])
    except NONSENSE:
        return ()


def read_labels(text: str) -> Mapping[str, str]:
    try:
        return msgspec.json.decode(text, type=dict[str, str])
    except NONSENSE:
        return {}

"""A job as a document, and back. Payloads stay JSON text, so that what comes out is what went in, on each store.

A field that has no value is left out. `revision` counts how often a job that waits was changed, or came back: whoever
has read it knows by that whether it still is what he read.

A job with an order key has a `lane`: 0 until it is due, 1 in the line of its key, 2 at the head. Before it is the head,
its moment is `due_at`, and it has no `run_at`: so claims, which look for one in the past, pass it by at no cost. Its
place in the line is (`place`, `arrival`): when it was due, and then the server's count of what was inserted.
`arriving`: admission has not yet seen to it. `linked` counts how often someone came to wait for the job's chain.

A date here counts milliseconds: what says "not before" is rounded up and what says "no later than" is rounded down,
so that no job is ever due too early or claimed too late.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Literal, TypeAlias
from uuid import UUID

from bson import Timestamp
from bson.binary import UUID_SUBTYPE, Binary

from ...errors import InvalidInput
from ...job import Job, NewJob
from ...lifecycle import BLOCKED

Document: TypeAlias = dict[str, Any]
OrderKey: TypeAlias = tuple[str, str]  # the tenant and the order key itself
Arriving: TypeAlias = Literal["blocked", "in line"]

NOT_DUE, IN_LINE, HEAD = 0, 1, 2
FILLED_IN = Timestamp(0, 0)  # where a document is inserted with it, the server puts its own count

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
    "order_key",
    "if_failed",
    "chain_trace",
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


def when_due(new: NewJob, now: datetime) -> datetime:
    moment = round_up(add(new.run_at or now, new.delay_seconds))
    as_it_is = new.of_tick and new.order_key is None
    return moment if as_it_is else max(moment, now)  # nobody gets ahead by claiming to be older


def run_at_of(document: Document) -> datetime:
    moment: datetime = document.get("run_at") or document["due_at"]
    return moment


def order_key_of(document: Document) -> OrderKey:
    return document["tenant"], document["order_key"]


def chain_of(document: Document) -> UUID:
    chain: UUID = document.get("chain_id") or document["_id"]
    return chain


def expiry(new: NewJob, now: datetime) -> datetime | None:
    if new.expires_at is not None:
        return round_down(new.expires_at)
    return None if new.expires_seconds is None else round_down(add(now, new.expires_seconds))


def to_document(new: NewJob, now: datetime) -> Document:
    document: Document = {
        "_id": new.id,
        "state": new.state,
        "queue": new.queue,
        "type": new.type,
        "tenant": new.tenant,
        "rank": new.rank,
        "run_at": when_due(new, now),
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
    if new.unique_key is not None:
        document["unique_scope"] = new.unique_scope
        if new.unique_until in HELD_BY_JOB:
            document["unique_held"] = True
    if new.state == BLOCKED:
        document["arriving"] = "blocked"
    if new.order_key is not None:
        document |= to_line(document.pop("run_at"), blocked=new.state == BLOCKED) | {"arrival": FILLED_IN}
    return document


def to_line(moment: datetime, *, blocked: bool) -> Document:
    """Of a job with an order key, when it comes or comes back."""
    arriving: Arriving = "blocked" if blocked else "in line"
    return {"lane": NOT_DUE, "due_at": moment, "arriving": arriving}


def rewritten(new: NewJob, holder: Document, now: datetime) -> Document:
    """What `replace` renews on the job that is there, which may be put off for so long; None: it has none any more."""
    run_at = when_due(new, now)
    if new.window_seconds is not None:
        run_at = min(run_at, round_up(add(holder["created_at"], new.window_seconds)))
    changes: Document = {
        "input": new.input,
        "run_at": run_at,
        "expires_at": expiry(new, now),
        "rank": new.rank,
        "labels": new.labels,
    }
    if holder.get("lane") in (NOT_DUE, IN_LINE):
        moment = changes["due_at"] = max(changes.pop("run_at"), now)
        if moment > now:  # out of the line until then
            changes |= to_line(moment, blocked=holder["state"] == BLOCKED)
    return changes


def to_job(document: Document, *, created: bool = True) -> Job:
    get = document.get
    return Job(
        document["_id"], document["type"], document["queue"], document["tenant"], document["state"], document["rank"],
        get("run_at") or document["due_at"], document["created_at"], document["input"], document["attempt"],
        get("max_attempts"), get("lease_seconds"), get("keep_seconds"), get("policy"), get("labels"), get("error"),
        get("attempts"), get("expires_at"), get("unique_key"), get("order_key"), get("chain_id"), get("chain_index", 0),
        get("trace"), get("progress"), get("claimed_at"), get("worker"), get("leased_until"),
        get("cancel_requested", False), get("output"), get("finished_at"), get("blockers_left"),
        get("if_failed"), get("chain_trace"), created,
    )  # fmt: skip


def last_of_each(rows: Sequence[Document]) -> list[Document]:
    """The last of the given jobs of each chain. Only the last job of a chain may be live, or be retried."""
    last: dict[UUID, Document] = {}
    for row in sorted(rows, key=lambda row: row.get("chain_index", 0)):
        last[chain_of(row)] = row
    return [*last.values()]

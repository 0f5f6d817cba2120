"""A job as a document, and back. Payloads stay JSON text, so that each store returns exactly the text that it got.

A field without a value is left out. `revision` counts the changes of a waiting job: a claim that has read the job
writes only if the revision is still the same.

A job with an order key has a `lane`: 0 until it is due, 1 in the line of its key, 2 at the head. Before it is the head,
it has `due_at` in place of `run_at`. Claims look for `run_at`, so they skip it at no cost. Its place in the line is
(`place`, `arrival`): the time at which it was due, and the server's count of insertions. A job that is `arriving` was
not admitted yet. `linked` counts how often a job began to wait for this job's chain.

MongoDB's dates count milliseconds. "Not before" is rounded up and "not later than" is rounded down, so that no job is
due too early or claimed too late.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Any, Literal, TypeAlias
from uuid import UUID

import msgspec
from bson import Timestamp
from bson.binary import UUID_SUBTYPE, Binary
from msgspec import NODEFAULT

from ...errors import InvalidInput
from ...job import Job, NewJob
from ...lifecycle import BLOCKED
from ..columns import Column, Columns, Use, compiled

Document: TypeAlias = dict[str, Any]
OrderKey: TypeAlias = tuple[str, str]  # the tenant and the order key itself
Arriving: TypeAlias = Literal["blocked", "in line"]

NOT_DUE, IN_LINE, HEAD = 0, 1, 2
FILLED_IN = Timestamp(0, 0)  # the server replaces it with its count when the document is inserted

MILLISECOND = timedelta(milliseconds=1)

ALWAYS = ("id", "type", "queue", "tenant", "state", "rank", "input")  # each job has a value for these
# Fields that are not copied as they are given.
COMPUTED = ("run_at", "expires_at", "chain_id", "chain_index", "unique_scope")
# Unique keys that the job's document holds, through the partial unique index. Other keys have records.
HELD_BY_JOB = ("claimed", "finished")


def to_key(id: UUID) -> Binary:
    """An id as the driver encodes it, but encoded once: this is the most expensive part of a large filter."""
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
    return moment if as_it_is else max(moment, now)  # a time in the past gives no precedence


def run_at_of(document: Document) -> datetime:
    moment: datetime = document.get("run_at") or document["due_at"]
    return moment


def keep_seconds_of(document: Document) -> int | None:
    """None: no keep= was given. A value of another type, written by hand, must stop no batch: it counts as None."""
    keep_seconds = document.get("keep_seconds")
    return keep_seconds if isinstance(keep_seconds, int) else None


def order_key_of(document: Document) -> OrderKey:
    return document["tenant"], document["order_key"]


def chain_of(document: Document) -> UUID:
    chain: UUID = document.get("chain_id") or document["_id"]
    return chain


def expiry(new: NewJob, now: datetime) -> datetime | None:
    if new.expires_at is not None:
        return round_down(new.expires_at)
    return None if new.expires_seconds is None else round_down(add(now, new.expires_seconds))


def to_line(moment: datetime, *, blocked: bool) -> Document:
    """The fields of a job with an order key that is enqueued or retried."""
    arriving: Arriving = "blocked" if blocked else "in line"
    return {"lane": NOT_DUE, "due_at": moment, "arriving": arriving}


class Documents:
    """Writes jobs as documents and reads them back, as the catalogue of columns says."""

    def __init__(self, columns: Columns) -> None:
        given = [column for column in columns.used(Use.GIVEN, Use.ENQUEUE) if column.name not in COMPUTED]
        always = [column for column in given if column.name in ALWAYS]
        options = [column for column in given if column.name not in ALWAYS]
        fields = ", ".join(f"{column.in_document!r}: new.{column.name}" for column in always)
        self._always = compiled("new, now", f"{{{fields}, 'created_at': now, 'attempt': 0}}")
        self._names = [column.in_document for column in options]
        self._values = attrgetter(*(column.name for column in options))
        self._replaced = [column.name for column in columns.used(Use.REPLACE)]
        self._to_job = _job_of_document(columns)

    def to_document(self, new: NewJob, now: datetime) -> Document:
        document: Document = self._always(new, now)
        document["run_at"] = when_due(new, now)
        for name, value in zip(self._names, self._values(new), strict=True):
            if value is not None:
                document[name] = value
        if new.chain_id is not None and new.chain_id != new.id:  # else it is the first of its chain
            document |= {"chain_id": new.chain_id, "chain_index": new.chain_index}
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

    def replaced(self, new: NewJob, holder: Document, now: datetime) -> Document:
        """The changes that on_conflict="replace" makes on the holder of the key; None: the field is removed."""
        run_at = when_due(new, now)
        if new.window_seconds is not None:
            run_at = min(run_at, round_up(add(holder["created_at"], new.window_seconds)))
        changes: Document = {name: getattr(new, name) for name in self._replaced}
        changes |= {"run_at": run_at, "expires_at": expiry(new, now)}
        if holder.get("lane") in (NOT_DUE, IN_LINE):
            moment = changes["due_at"] = max(changes.pop("run_at"), now)
            if moment > now:  # it leaves the line until then
                changes |= to_line(moment, blocked=holder["state"] == BLOCKED)
        return changes

    def to_job(self, document: Document, *, created: bool = True) -> Job:
        return self._to_job(document, document.get, created)


def _job_of_document(columns: Columns) -> Callable[..., Job]:
    """A function that makes a `Job` of a document."""
    defaults = {field.name: field.default for field in msgspec.structs.fields(Job)}

    def value(column: Column) -> str:
        name, default = column.in_document, defaults[column.field or ""]
        if name == "run_at":
            return "get('run_at') or document['due_at']"
        return f"document[{name!r}]" if default is NODEFAULT else f"get({name!r}, {default!r})"

    fields = ", ".join(value(column) for column in columns.read)
    return compiled("document, get, created", f"Job({fields}, created)", Job=Job)


def last_of_each(rows: Sequence[Document]) -> list[Document]:
    """The last of the given jobs of each chain. Only the last job of a chain may be live, or be retried."""
    last: dict[UUID, Document] = {}
    for row in sorted(rows, key=lambda row: row.get("chain_index", 0)):
        last[chain_of(row)] = row
    return [*last.values()]

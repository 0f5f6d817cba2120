"""Rows of the two SQL stores, and the jobs that they are."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any
from uuid import UUID

import msgspec

from ...clock import from_microseconds
from ...job import AttemptRecord, Job, JobError, NewJob
from ...lifecycle import PENDING
from ...operation import Row
from ...policy import Policy

# What a job is read from, in this order, from the live table and from history alike.
COMMON = (
    "id type queue tenant state rank run_at created_at input attempt max_attempts lease_seconds keep_seconds policy "
    "labels error attempts expires_at unique_key order_key chain_id chain_index trace claimed_at worker token"
).split()
LIVE_ONLY = ["leased_until", "cancel_requested"]
FINISHED_ONLY = ["output", "finished_at"]


@lru_cache(maxsize=1024)
def policy_of(
    max_attempts: int | None, lease_seconds: float | None, keep_seconds: int | None, details: str | None
) -> Policy | None:
    if max_attempts is None:
        return None
    return Policy.from_columns(max_attempts, lease_seconds, keep_seconds, details)


def decode_error(text: str | None) -> JobError | None:
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=JobError)
    except msgspec.MsgspecError:
        return JobError("Error", text)


def decode_attempts(text: str | None) -> tuple[AttemptRecord, ...]:
    """One bad row must stop nobody: what cannot be read is left out."""
    if text is None:
        return ()
    try:
        return msgspec.json.decode(text, type=tuple[AttemptRecord, ...])
    except msgspec.MsgspecError:
        return ()


def decode_labels(text: str | None) -> dict[str, str]:
    return msgspec.json.decode(text, type=dict[str, str]) if text else {}


class RowReader:
    """Makes jobs of rows; a dialect says how it writes times and ids."""

    def __init__(self, to_datetime: Callable[[Any], datetime], to_uuid: Callable[[Any], UUID]) -> None:
        self.to_datetime, self.to_uuid = to_datetime, to_uuid

    def job(self, row: Row) -> Job:
        (
            id, type, queue, tenant, state, rank, run_at, created_at, input, attempt, max_attempts, lease_seconds,
            keep_seconds, policy, labels, error, attempts, expires_at, unique_key, order_key, chain_id, chain_index,
            trace, claimed_at, worker, _token, leased_until, cancel_requested, output, finished_at, *_,
        ) = row  # fmt: skip
        when, to_uuid = self.to_datetime, self.to_uuid
        own_id = to_uuid(id)
        return Job(
            id=own_id,
            type=type,
            queue=queue,
            tenant=tenant,
            state=state,
            priority=-rank,
            run_at=when(run_at),
            created_at=when(created_at),
            input_json=input,
            attempt=attempt,
            policy=policy_of(max_attempts, lease_seconds, keep_seconds, policy),
            labels=decode_labels(labels),
            error=decode_error(error),
            attempts=decode_attempts(attempts),
            expires_at=None if expires_at is None else when(expires_at),
            unique_key=unique_key,
            order_key=order_key,
            chain_id=own_id if chain_id == id else to_uuid(chain_id),
            chain_index=chain_index,
            trace=trace,
            claimed_at=None if claimed_at is None else when(claimed_at),
            worker=worker,
            lease_expires_at=None if leased_until is None else when(leased_until),
            cancel_requested=bool(cancel_requested),
            output_json=output,
            finished_at=None if finished_at is None else when(finished_at),
        )

    def token(self, row: Row) -> UUID:
        return self.to_uuid(row[len(COMMON) - 1])


_known_as_utc: set[object] = {UTC}


def utc(moment: datetime) -> datetime:
    """In UTC, whatever the session's timezone; on most servers that is UTC by another name."""
    zone = moment.tzinfo
    if zone in _known_as_utc:
        return moment
    if str(zone) in ("UTC", "Etc/UTC"):
        _known_as_utc.add(zone)
        return moment
    return moment.astimezone(UTC)


def same(value: Any) -> Any:
    return value


def quick_uuid(text: str) -> UUID:
    """`UUID(text)` for text that we wrote ourselves: a third of the time."""
    return UUID(int=int(text.replace("-", ""), 16))


POSTGRES_ROWS = RowReader(utc, same)
SQLITE_ROWS = RowReader(from_microseconds, quick_uuid)


def new_job(job: NewJob, run_at: datetime, created_at: datetime, expires_at: datetime | None) -> Job:
    """A job that was just added, without reading it back."""
    return Job(
        id=job.id,
        type=job.type,
        queue=job.queue,
        tenant=job.tenant,
        state=PENDING,
        priority=-job.rank,
        run_at=run_at,
        created_at=created_at,
        input_json=job.input,
        policy=policy_of(job.max_attempts, job.lease_seconds, job.keep_seconds, job.policy),
        labels=decode_labels(job.labels),
        expires_at=expires_at,
        unique_key=job.unique_key,
        chain_id=job.chain_id or job.id,
        chain_index=job.chain_index,
        trace=job.trace,
    )

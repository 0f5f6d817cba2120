"""Rows of the two SQL stores, and the jobs that they are."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any
from uuid import UUID

import msgspec

from ...clock import to_microseconds
from ...job import AttemptRecord, Job, JobError, Moment, NewJob, read_moment
from ...lifecycle import PENDING
from ...operation import Row
from ...policy import Policy

# What a job is read from, in this order, from the live table and from history alike.
COMMON = (
    "id type queue tenant state rank run_at created_at input attempt max_attempts lease_seconds keep_seconds policy "
    "labels error attempts expires_at unique_key order_key chain_id chain_index trace progress claimed_at worker token"
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
    try:
        return msgspec.json.decode(text, type=dict[str, str]) if text else {}
    except msgspec.MsgspecError:
        return {}


class RowReader:
    """Makes jobs of rows; a dialect says how it writes times and ids."""

    def __init__(self, to_moment: Callable[[Any], Moment], to_uuid: Callable[[Any], UUID]) -> None:
        self.to_moment, self.to_uuid = to_moment, to_uuid

    def to_datetime(self, value: Any) -> datetime:
        return read_moment(self.to_moment(value))

    def job(self, row: Row) -> Job:
        (
            id, type, queue, tenant, state, rank, run_at, created_at, input, attempt, max_attempts, lease_seconds,
            keep_seconds, policy, labels, error, attempts, expires_at, unique_key, order_key, chain_id, chain_index,
            trace, progress, claimed_at, worker, _token, leased_until, cancel_requested, output, finished_at, *_,
        ) = row  # fmt: skip
        when, to_uuid = self.to_moment, self.to_uuid
        return Job(
            id=to_uuid(id),
            type=type,
            queue=queue,
            tenant=tenant,
            state=state,
            priority=-rank,
            run_at_raw=when(run_at),
            created_at_raw=when(created_at),
            input_json=input,
            attempt=attempt,
            policy=policy_of(max_attempts, lease_seconds, keep_seconds, policy),
            labels=NO_LABELS if labels is None else decode_labels(labels),
            error=None if error is None else decode_error(error),
            attempts=() if attempts is None else decode_attempts(attempts),
            expires_at_raw=None if expires_at is None else when(expires_at),
            unique_key=unique_key,
            order_key=order_key,
            root_id=None if chain_id is None else to_uuid(chain_id),
            chain_index=chain_index,
            trace=trace,
            progress_json=progress,
            claimed_at_raw=None if claimed_at is None else when(claimed_at),
            worker=worker,
            lease_expires_at_raw=None if leased_until is None else when(leased_until),
            cancel_requested=bool(cancel_requested),
            output_json=output,
            finished_at_raw=None if finished_at is None else when(finished_at),
        )


POSTGRES_EPOCH = to_microseconds(datetime(2000, 1, 1, tzinfo=UTC))


def postgres_moment(value: bytes | datetime) -> Moment:
    """Our own connections leave a timestamp as the eight bytes that came; a borrowed one makes a datetime of it."""
    if isinstance(value, bytes):
        return int.from_bytes(value, "big", signed=True) + POSTGRES_EPOCH
    return value if value.tzinfo is UTC else value.astimezone(UTC)


def same(value: Any) -> Any:
    return value


def quick_uuid(text: str) -> UUID:
    """`UUID(text)` for text that we wrote ourselves."""
    return UUID(int=int(text.replace("-", ""), 16))


POSTGRES_ROWS = RowReader(postgres_moment, same)
SQLITE_ROWS = RowReader(same, quick_uuid)
NO_LABELS: dict[str, str] = {}


def new_job(job: NewJob, run_at: Moment, created_at: Moment, expires_at: Moment | None) -> Job:
    """A job that was just added, without reading it back."""
    return Job(
        id=job.id,
        type=job.type,
        queue=job.queue,
        tenant=job.tenant,
        state=PENDING,
        priority=-job.rank,
        run_at_raw=run_at,
        created_at_raw=created_at,
        input_json=job.input,
        policy=policy_of(job.max_attempts, job.lease_seconds, job.keep_seconds, job.policy),
        labels=NO_LABELS if job.labels is None else decode_labels(job.labels),
        expires_at_raw=expires_at,
        unique_key=job.unique_key,
        root_id=job.chain_id,
        chain_index=job.chain_index,
        trace=job.trace,
    )

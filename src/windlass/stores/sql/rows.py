"""Rows of the two SQL stores, and the jobs that they are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from ...job import Job, Moment, NewJob, read_moment
from ...operation import Row
from ...schedule import Schedule

# What a job is read from, in this order, from the live table and from history alike: the order of its fields.
COMMON = (
    "id type queue tenant state rank run_at created_at input attempt max_attempts lease_seconds keep_seconds policy "
    "labels error attempts expires_at unique_key order_key chain_id chain_index trace progress claimed_at worker"
).split()
LIVE_ONLY = ["leased_until", "cancel_requested"]
FINISHED_ONLY = ["output", "finished_at"]
LAST = ["blockers_left", "if_failed", "chain_trace"]  # the first of live ones only
COLUMNS = len(COMMON) + len(LIVE_ONLY) + len(FINISHED_ONLY) + len(LAST)


class RowReader:
    """Makes jobs of rows; a dialect says how it writes ids, and which columns are not a job's fields as they are."""

    def __init__(self, to_uuid: Callable[[Any], UUID], job: Callable[[Row], Job]) -> None:
        self.to_uuid, self.job = to_uuid, job

    def to_datetime(self, value: Moment) -> datetime:
        return read_moment(value)


def quick_uuid(text: str) -> UUID:
    """`UUID(text)` for text that we wrote ourselves."""
    return UUID(int=int(text.replace("-", ""), 16))


def as_uuid(value: Any) -> UUID:
    """What the caller's driver gives for an id: mostly a UUID, but what he has told it to (a codec) may be another."""
    if type(value) is UUID:
        return value
    if isinstance(value, UUID):
        return UUID(int=value.int)
    return UUID(bytes=bytes(value)) if isinstance(value, bytes | bytearray | memoryview) else UUID(str(value))


def _of_postgres(row: Row) -> Job:
    if type(row[0]) is not UUID:
        row = [as_uuid(row[0]), *row[1:20], row[20] and as_uuid(row[20]), *row[21:]]
    return Job(*row[:COLUMNS])  # a claim and a rescue have one more


def _of_sqlite(row: Row) -> Job:
    root = row[20] and quick_uuid(row[20])
    fields = [quick_uuid(row[0]), *row[1:20], root, *row[21:27], bool(row[27]), *row[28:COLUMNS]]
    return Job(*fields)


POSTGRES_ROWS = RowReader(as_uuid, _of_postgres)
SQLITE_ROWS = RowReader(quick_uuid, _of_sqlite)


def new_job(job: NewJob, run_at: Moment, created_at: Moment, expires_at: Moment | None) -> Job:
    """A job that was just added, without reading it back."""
    return Job(
        job.id, job.type, job.queue, job.tenant, job.state, job.rank, run_at, created_at, job.input, 0,
        job.max_attempts, job.lease_seconds, job.keep_seconds, job.policy, job.labels, None, None, expires_at,
        job.unique_key, job.order_key, job.chain_id, job.chain_index, job.trace, if_failed_raw=job.if_failed,
        chain_trace=job.chain_trace,
    )  # fmt: skip


def shared_placeholders(names: Mapping[str, str]) -> dict[str, str]:
    """The names of a dialect, and the lists of columns. One list for both tables, with NULLs for columns that one of
    them lacks."""
    no_moment = f"CAST(NULL AS {names['moment']})"
    return {
        **names,
        "live_columns": f"{_columns(names, [*COMMON, *LIVE_ONLY])}, CAST(NULL AS text), {no_moment}, "
        f"{_columns(names, LAST)}",
        "finished_columns": f"{_columns(names, COMMON)}, {no_moment}, {names['false']}, "
        f"{_columns(names, FINISHED_ONLY)}, CAST(NULL AS integer), {_columns(names, LAST[1:])}",
        "schedule_columns": ", ".join(f"s.{name}" for name in Schedule.__struct_fields__),
    }


def _columns(names: Mapping[str, str], columns: Iterable[str]) -> str:
    """A select list: each by its name, or as the dialect reads it."""
    return ", ".join(names.get(f"read_{name}", f"{names['alias']}{name}") for name in columns)

"""Rows of the two SQL stores, and the jobs that are made of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from operator import itemgetter
from typing import Any
from uuid import UUID

import msgspec

from ...job import Job, Moment, NewJob, read_moment
from ...lifecycle import RUNNING
from ...operation import Row, Rows
from ..columns import Column, Columns, Use, compiled

COMPUTED = ("run_at", "created_at", "expires_at")  # by the store, for a new job
KNOWN = {"queue": "queue", "state": repr(RUNNING), "worker": "worker"}  # to the claimer; the others are defaults


class RowReader:
    """Makes jobs of rows. `convert` has a function for each column whose value is not yet that of the job's field."""

    def __init__(
        self, columns: Columns, to_uuid: Callable[[Any], UUID], convert: Mapping[str, Callable[[Any], Any]]
    ) -> None:
        self.to_uuid = to_uuid
        self.width = len(columns.read)
        names = [column.name for column in columns.claimed]
        self._order = itemgetter(*(names.index(name) for name in ("rank", "run_at", "id")))
        self._job_of_claim = _job_of_claim(columns, convert)
        self._conversions = [(columns.position(name), change) for name, change in convert.items()]
        self._job_of_new = _job_of_new(columns)

    def job(self, row: Row) -> Job:
        """A row may have further columns after those of the job."""
        if type(row[0]) is UUID:  # the driver has converted all values
            return Job(*row[: self.width])
        fields = list(row[: self.width])
        for position, change in self._conversions:
            fields[position] = change(fields[position])
        return Job(*fields)

    def claimed(self, rows: Rows, queue: str, worker: str) -> list[Job]:
        """The rows of a claim, which have the columns that a claimer does not know, as jobs."""
        make = self._job_of_claim
        return [make(row, queue, worker) for row in rows]

    def claim_order(self, row: Row) -> Any:
        """Of a row of a claim: by rank, time and id. UUIDs are compared as integers, which is quicker."""
        rank, run_at, id = self._order(row)
        return rank, run_at, id.int if type(id) is UUID else id

    def new_job(self, job: NewJob, run_at: Moment, created_at: Moment, expires_at: Moment | None) -> Job:
        """A job that was just added, without reading it back."""
        return self._job_of_new(job, run_at, created_at, expires_at)

    def to_datetime(self, value: Moment) -> datetime:
        return read_moment(value)


def _job_of_new(columns: Columns) -> Callable[..., Job]:
    """A function that makes a `Job` of a `NewJob` and the values that the store has computed."""
    defaults = {field.name: field.default for field in msgspec.structs.fields(Job)}

    def value(column: Column) -> str:
        if column.name in COMPUTED:
            return column.name
        return f"new.{column.name}" if Use.GIVEN in column.use else repr(defaults[column.field or ""])

    fields = ", ".join(value(column) for column in columns.read)
    return compiled(f"new, {', '.join(COMPUTED)}", f"Job({fields})", Job=Job)


def _job_of_claim(columns: Columns, convert: Mapping[str, Callable[[Any], Any]]) -> Callable[..., Job]:
    """A function that makes a `Job` of a row of a claim."""
    defaults = {field.name: field.default for field in msgspec.structs.fields(Job)}
    names = [column.name for column in columns.claimed]

    def value(column: Column) -> str:
        if column.name not in names:
            return KNOWN.get(column.name) or repr(defaults[column.field or ""])
        place = f"row[{names.index(column.name)}]"
        return f"to_{column.name}({place})" if column.name in convert else place

    fields = ", ".join(value(column) for column in columns.read)
    conversions = {f"to_{name}": change for name, change in convert.items()}
    return compiled("row, queue, worker", f"Job({fields})", Job=Job, **conversions)


def quick_uuid(text: str) -> UUID:
    """`UUID(text)` for text that Windlass wrote itself."""
    return UUID(int=int(text.replace("-", ""), 16))


def as_uuid(value: Any) -> UUID:
    """The id that the caller's driver returned: usually a UUID, but a codec of the caller may return another type."""
    if type(value) is UUID:
        return value
    if isinstance(value, UUID):
        return UUID(int=value.int)
    return UUID(bytes=bytes(value)) if isinstance(value, bytes | bytearray | memoryview) else UUID(str(value))


def postgres_rows(columns: Columns) -> RowReader:
    return RowReader(columns, as_uuid, {"id": as_uuid, "chain_id": lambda root: root and as_uuid(root)})


def sqlite_rows(columns: Columns) -> RowReader:
    convert = {"id": quick_uuid, "chain_id": lambda root: root and quick_uuid(root), "cancel_requested": bool}
    return RowReader(columns, quick_uuid, convert)

"""The queries of the SQL stores: their text from `.sql` files, and the jobs that their rows become.

A text is loaded once, and rendered for one schema and prefix, in each driver's parameter style.

In the files a parameter is `:name` and a placeholder is `{name}`. `{name|text}` puts the text where the placeholder's
value has `$1`. A file may hold several statements, divided by a blank line; they are executed one after the other with
the same parameters.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import cached_property
from importlib.resources import files
from typing import Any
from uuid import UUID

import msgspec

from ...clock import Clock
from ...job import Job, Moment, NewJob, read_moment
from ...lifecycle import RUNNING
from ...operation import Row, Rows, Statement
from ..columns import Column, Columns, Use, compiled

_PARAMETER = re.compile(r"(?<![:\w]):([a-z_]+)\b")
_PLACEHOLDER = re.compile(r"\{([a-z_]+)(?:\|([^{}|]+))?\}")
_COMMENT = re.compile(r"^[ \t]*--.*\n", re.MULTILINE)
_LINE_BREAK = re.compile(r"\s*\n\s*")
_BOUNDARY = re.compile(r";\s*\n\s*\n")

COMPUTED = ("run_at", "created_at", "expires_at")  # by the store, for a new job
KNOWN = {"queue": "queue", "state": repr(RUNNING), "worker": "worker"}  # to the claimer; the others are defaults

# Texts


class Query:
    """One query: a statement, or a few that belong together."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        parts = [part.strip().rstrip(";") for part in _BOUNDARY.split(text) if part.strip()]
        # In one line: psycopg reads anew, each time, what has more than 4096 characters.
        self.statements = tuple(_LINE_BREAK.sub(" ", part) for part in parts)

    def __repr__(self) -> str:
        return f"<Query {self.name}>"

    @cached_property
    def named(self) -> tuple[str, ...]:
        """`:name`, as sqlite3 has it."""
        return self.statements

    @cached_property
    def binary(self) -> tuple[str, ...]:
        """`%(name)b`: psycopg sends arrays a good deal faster in binary."""
        return tuple(_pyformat(statement, "b") for statement in self.statements)

    @cached_property
    def pyformat(self) -> tuple[str, ...]:
        return tuple(_pyformat(statement, "s") for statement in self.statements)

    @cached_property
    def numbered(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """`$1`, with the names in that order, as asyncpg has it."""
        return tuple(_numbered(statement) for statement in self.statements)


def _pyformat(statement: str, kind: str) -> str:
    return _PARAMETER.sub(rf"%(\1){kind}", statement.replace("%", "%%"))


def _numbered(statement: str) -> tuple[str, tuple[str, ...]]:
    names = tuple(dict.fromkeys(_PARAMETER.findall(statement)))
    return _PARAMETER.sub(lambda match: f"${names.index(match[1]) + 1}", statement), names


def render(text: str, placeholders: Mapping[str, str]) -> str:
    """Fill in the placeholders, also those inside of their values; remove comments."""

    def value(match: re.Match[str]) -> str:
        found = placeholders.get(match[1], match[0])
        return found.replace("$1", match[2]) if match[2] else found

    without = _COMMENT.sub("", text)
    while True:
        filled = _PLACEHOLDER.sub(value, without)
        if filled == without:
            return filled
        without = filled


class Library:
    """A folder of queries. Asked for a name, it answers with the query, rendered and kept."""

    def __init__(self, package: str, placeholders: Mapping[str, str]) -> None:
        self.package = package
        self.placeholders = placeholders
        self._queries: dict[str, Query] = {}
        self._made: dict[tuple[str, ...], Query] = {}

    def __getitem__(self, name: str) -> Query:
        query = self._queries.get(name)
        if query is None:
            query = self._queries[name] = self.render(name, self._text(name))
        return query

    def variant(self, name: str, **parts: str) -> Query:
        """A query with parts of it chosen by the caller."""
        key = (name, *parts.values())
        if key not in self._made:
            self._made[key] = Query(name, render(self._text(name), {**self.placeholders, **parts}))
        return self._made[key]

    def made(self, key: tuple[str, ...], make: Callable[[], str]) -> Query:
        """A query that is put together in Python; once for each key."""
        if key not in self._made:
            self._made[key] = self.render(key[0], make())
        return self._made[key]

    def render(self, name: str, text: str) -> Query:
        return Query(name, render(text, self.placeholders))

    def _text(self, name: str) -> str:
        return files(self.package).joinpath("queries", f"{name}.sql").read_text(encoding="utf-8")

    def names(self) -> list[str]:
        folder = files(self.package).joinpath("queries")
        return sorted(entry.name.removesuffix(".sql") for entry in folder.iterdir() if entry.name.endswith(".sql"))


class Queries:
    """The queries of one dialect. They contain the clock's offset, which only tests change."""

    def __init__(self, package: str, clock: Clock, placeholders: Callable[[timedelta], dict[str, str]]) -> None:
        self.package, self.clock, self.placeholders = package, clock, placeholders
        self._libraries: dict[timedelta, Library] = {}

    @property
    def library(self) -> Library:
        library = self._libraries.get(self.clock.offset)
        if library is None:
            library = Library(self.package, self.placeholders(self.clock.offset))
            self._libraries[self.clock.offset] = library
        return library

    def statement(self, name: str, /, *, alone: bool = False, **parameters: Any) -> Statement:
        return Statement(self.library[name], parameters, alone=alone)


def migrations(package: str) -> list[tuple[int, str, str]]:
    """(version, name, text) of each migration of a store, oldest first."""
    found = []
    for entry in files(package).joinpath("migrations").iterdir():
        if entry.name.endswith(".sql"):
            name = entry.name.removesuffix(".sql")
            found.append((int(name.split("_")[0]), name, entry.read_text(encoding="utf-8")))
    return sorted(found)


# Rows


class RowReader:
    """Makes jobs of rows. `convert` has a function for each column whose value is not yet that of the job's field."""

    def __init__(
        self, columns: Columns, to_uuid: Callable[[Any], UUID], convert: Mapping[str, Callable[[Any], Any]],
        convert_claimed: Mapping[str, Callable[[Any], Any]],
    ) -> None:  # fmt: skip
        self.to_uuid = to_uuid
        self.width = len(columns.read)
        self.claim_order = _order_of_claim(columns, convert_claimed)
        self._jobs_of_claim = _jobs_of_claim(columns, convert_claimed)
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
        return self._jobs_of_claim(rows, queue, worker)

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


def _order_of_claim(columns: Columns, convert: Mapping[str, Callable[[Any], Any]]) -> Callable[[Row], Any]:
    """The sort key of a row of a claim: rank, time and id. UUIDs are compared as integers, which is quicker; ids that
    are still text are compared as such."""
    names = [column.name for column in columns.claimed]
    rank, run_at, id = (f"row[{names.index(name)}]" for name in ("rank", "run_at", "id"))
    return compiled("row", f"({rank}, {run_at}, {id if 'id' in convert else id + '.int'})")


def _jobs_of_claim(columns: Columns, convert: Mapping[str, Callable[[Any], Any]]) -> Callable[..., list[Job]]:
    """A function that makes jobs of the rows of a claim."""
    defaults = {field.name: field.default for field in msgspec.structs.fields(Job)}
    names = [column.name for column in columns.claimed]

    def value(column: Column) -> str:
        if column.name not in names:
            return KNOWN.get(column.name) or repr(defaults[column.field or ""])
        place = f"row[{names.index(column.name)}]"
        return f"to_{column.name}({place})" if column.name in convert else place

    fields = ", ".join(value(column) for column in columns.read)
    conversions = {f"to_{name}": change for name, change in convert.items()}
    return compiled("rows, queue, worker", f"[Job({fields}) for row in rows]", Job=Job, **conversions)


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
    convert = {"id": as_uuid, "chain_id": lambda root: root and as_uuid(root)}
    return RowReader(columns, as_uuid, convert, {})  # claims are read on connections of Windlass


def sqlite_rows(columns: Columns) -> RowReader:
    convert = {"id": quick_uuid, "chain_id": lambda root: root and quick_uuid(root), "cancel_requested": bool}
    return RowReader(columns, quick_uuid, convert, convert)

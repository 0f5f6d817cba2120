"""The columns of a job, each declared once. The stores render their statements, row readers and documents from here.

To add an option to jobs: add a field to `NewJob` (and to `Job`, if it is read), a line here, and a migration. A column
without a rule of its own is copied as it is, wherever its `use` says so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Flag, auto
from typing import Any, cast


class Use(Flag):
    """The statements that contain a column."""

    GIVEN = auto()  # the caller of `enqueue` gives it: a field of `NewJob`
    ENQUEUE = auto()  # enqueue writes it
    PLAIN = auto()  # so do the quicker ways for a job without keys and blockers: COPY, and the next job of a chain
    REPLACE = auto()  # on_conflict="replace" rewrites it on the job that holds the key
    LIVE = auto()  # the table of live jobs has it
    HISTORY = auto()  # the table of finished jobs has it
    RETRY = auto()  # a retry copies it from history back to the live table
    CLAIM = auto()  # a claim answers with it; the claimer knows the others


STORED = Use.LIVE | Use.HISTORY
OPTION = Use.GIVEN | Use.ENQUEUE | Use.PLAIN | STORED | Use.RETRY | Use.CLAIM  # given once, and kept unchanged
KEY = OPTION & ~Use.PLAIN


@dataclass(frozen=True, slots=True)
class Column:
    """`postgres` and `sqlite` are the types of its values there, empty where that store has no such column. `field` is
    the field of `Job` that it is read into. `document` is its name in MongoDB."""

    name: str
    postgres: str
    sqlite: str
    field: str | None
    use: Use
    document: str = ""

    @property
    def in_document(self) -> str:
        return self.document or self.name


class Columns:
    """A catalogue of columns."""

    def __init__(self, *columns: Column) -> None:
        self.all = columns
        self.read = tuple(column for column in columns if column.field is not None)
        self.claimed = tuple(column for column in self.read if Use.CLAIM in column.use)

    def used(self, *uses: Use) -> tuple[Column, ...]:
        """The columns that have all of these uses."""
        return tuple(column for column in self.all if all(use in column.use for use in uses))

    def position(self, name: str) -> int:
        """The position of a column in a row that is read, and in a `Job`."""
        return next(position for position, column in enumerate(self.read) if column.name == name)


def compiled(arguments: str, expression: str, **names: Any) -> Callable[..., Any]:
    """A function with one expression that is rendered from the catalogue. It is as quick as one written by hand, which
    counts where it runs for each of many jobs."""
    return cast("Callable[..., Any]", eval(f"lambda {arguments}: {expression}", names))  # noqa: S307


# Columns with a `field` stand in the order of the fields of `Job`.
COLUMNS = Columns(
    Column("id", "uuid", "text", "id", OPTION, document="_id"),
    Column("type", "text", "text", "type", OPTION),
    Column("queue", "text", "text", "queue", OPTION & ~Use.CLAIM),
    Column("tenant", "text", "text", "tenant", OPTION),
    Column("state", "text", "text", "state", OPTION & ~Use.CLAIM),
    Column("rank", "int2", "integer", "rank", OPTION | Use.REPLACE),
    Column("run_at", "timestamptz", "integer", "run_at_raw", OPTION),
    Column("created_at", "timestamptz", "integer", "created_at_raw", OPTION & ~Use.GIVEN),
    Column("input", "text", "text", "input_json", OPTION | Use.REPLACE),
    Column("attempt", "int4", "integer", "attempt", STORED | Use.CLAIM),
    Column("max_attempts", "int4", "integer", "max_attempts_raw", OPTION),
    Column("lease_seconds", "float8", "real", "lease_seconds_raw", OPTION),
    Column("keep_seconds", "int4", "integer", "keep_seconds_raw", OPTION),
    Column("policy", "text", "text", "policy_json", OPTION),
    Column("labels", "text", "text", "labels_json", OPTION | Use.REPLACE),
    Column("error", "text", "text", "error_json", STORED | Use.RETRY | Use.CLAIM),
    Column("attempts", "text", "text", "attempts_json", STORED | Use.RETRY | Use.CLAIM),
    Column("expires_at", "timestamptz", "integer", "expires_at_raw", OPTION & ~Use.RETRY),
    Column("unique_key", "text", "text", "unique_key", KEY),
    Column("order_key", "text", "text", "order_key", KEY),
    Column("chain_id", "uuid", "text", "root_id", OPTION),
    Column("chain_index", "int4", "integer", "chain_index", OPTION),
    Column("trace", "text", "text", "trace", OPTION),
    Column("progress", "text", "text", "progress_json", STORED | Use.RETRY | Use.CLAIM),
    Column("claimed_at", "timestamptz", "integer", "claimed_at_raw", STORED | Use.CLAIM),
    Column("worker", "text", "text", "worker", STORED),
    Column("leased_until", "timestamptz", "integer", "lease_expires_at_raw", Use.LIVE | Use.CLAIM),
    Column("cancel_requested", "bool", "integer", "cancel_requested", Use.LIVE),
    Column("output", "text", "text", "output_json", Use.HISTORY),
    Column("finished_at", "timestamptz", "integer", "finished_at_raw", Use.HISTORY),
    Column("blockers_left", "int4", "integer", "blockers_left", Use.LIVE | Use.RETRY | Use.CLAIM),
    Column("if_failed", "text", "text", "if_failed_raw", KEY),
    Column("chain_trace", "text", "text", "chain_trace", OPTION),
    # Not fields of `Job`.
    Column("unique_scope", "text", "text", None, KEY),
    Column("unique_until", "text", "text", None, KEY),
    Column("unique_held", "bool", "integer", None, Use.LIVE | Use.ENQUEUE | Use.RETRY),
    Column("lane", "int2", "integer", None, Use.LIVE | Use.ENQUEUE | Use.RETRY),
    Column("seq", "int8", "integer", None, Use.LIVE | Use.ENQUEUE | Use.RETRY),
    Column("token", "uuid", "text", None, STORED),
    Column("schedule", "text", "text", None, STORED | Use.RETRY),
    Column("purge_at", "timestamptz", "integer", None, Use.HISTORY),
    Column("slot", "int2", "", None, Use.HISTORY),
    # Given with a job, and only used to compute other columns.
    Column("delay_seconds", "float8", "real", None, Use.GIVEN | Use.PLAIN),
    Column("expires_seconds", "float8", "real", None, Use.GIVEN | Use.PLAIN),
    Column("of_tick", "bool", "integer", None, Use.GIVEN),
)

"""Lists of columns and values for SQL statements, rendered from the catalogue when a store is opened.

A dialect gives the expressions of the columns that are not copied as they are. `$name` in an expression stands for a
value of the job; the statement decides how it refers to it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Literal, TypeAlias

from ...schedule import Schedule
from ..columns import Column, Columns, Use

Refer: TypeAlias = Callable[[Column], str]
Expressions: TypeAlias = Mapping[str, str]

_VALUE = re.compile(r"\$([a-z_]+)")


class Renderer:
    """The catalogue as one of the SQL stores has it."""

    def __init__(self, columns: Columns, kind: Literal["postgres", "sqlite"]) -> None:
        self.columns, self.kind = columns, kind
        self._by_name = {column.name: column for column in columns.all}

    def type_of(self, column: Column) -> str:
        return column.postgres if self.kind == "postgres" else column.sqlite

    def used(self, *uses: Use) -> list[Column]:
        return [column for column in self.columns.used(*uses) if self.type_of(column)]

    def values(self, use: Use, expressions: Expressions, refer: Refer) -> str:
        """The values for `names(use)`, in the same order."""
        return ", ".join(self._value(column, expressions, refer) for column in self._stored(use))

    def names(self, use: Use) -> str:
        return ", ".join(column.name for column in self._stored(use))

    def _stored(self, use: Use) -> list[Column]:
        return [column for column in self.used(use) if column.use & (Use.LIVE | Use.HISTORY)]

    def _value(self, column: Column, expressions: Expressions, refer: Refer) -> str:
        expression = expressions.get(column.name, f"${column.name}")
        return _VALUE.sub(lambda match: refer(self._by_name[match[1]]), expression)

    def assignments(self, use: Use, expressions: Expressions, refer: Refer) -> str:
        return ", ".join(f"{column.name} = {self._value(column, expressions, refer)}" for column in self._stored(use))

    def typed(self, columns: Iterable[Column]) -> str:
        """`labels text, rank int2`, as a recordset declares it."""
        return ", ".join(f"{column.name} {self.type_of(column)}" for column in columns)

    def selected(self, table: Use, expressions: Expressions, alias: str) -> str:
        """The columns of a job. Both tables give the same list, with NULL for a column that one of them lacks."""
        return ", ".join(self._selected(column, table, expressions, alias) for column in self.columns.read)

    def _selected(self, column: Column, table: Use, expressions: Expressions, alias: str) -> str:
        if table in column.use:
            return expressions.get(column.name, f"{alias}{column.name}")
        return "{false}" if column.postgres == "bool" else f"CAST(NULL AS {self.type_of(column)})"

    def placeholders(
        self, *, read: Expressions, claimed: Expressions, alias: str, enqueue: Expressions, parameter: Refer,
        history: Expressions, ended: str, retry: Expressions,
    ) -> dict[str, str]:  # fmt: skip
        """The lists that both dialects have. `ended`: the alias of the row that moves to history."""
        return {
            "live_columns": self.selected(Use.LIVE, read, alias),
            "finished_columns": self.selected(Use.HISTORY, read, alias),
            "claimed_columns": ", ".join(claimed.get(one.name, f"{alias}{one.name}") for one in self.columns.claimed),
            "enqueued_columns": self.names(Use.ENQUEUE),
            "enqueued_values": self.values(Use.ENQUEUE, enqueue, parameter),
            "replaced_values": self.assignments(Use.REPLACE, enqueue, parameter),
            "history_columns": self.names(Use.HISTORY),
            "history_values": self.values(Use.HISTORY, history, lambda column: f"{ended}{column.name}"),
            "retried_columns": self.names(Use.RETRY),
            "retried_values": self.values(Use.RETRY, retry, lambda column: column.name),
            "schedule_columns": ", ".join(f"s.{name}" for name in Schedule.__struct_fields__),
        }

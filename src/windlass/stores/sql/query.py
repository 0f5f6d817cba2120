"""SQL text from `.sql` files: loaded once, rendered for one schema and prefix, in each driver's parameter style.

In the files a parameter is `:name` and a placeholder is `{name}`. `{name|text}` puts the text where the placeholder's
value has `$1`. A file may hold several statements, divided by a blank line; they are executed one after the other with
the same parameters.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import cached_property
from importlib.resources import files
from typing import Any

from ...clock import Clock
from ...operation import Statement

_PARAMETER = re.compile(r"(?<![:\w]):([a-z_]+)\b")
_PLACEHOLDER = re.compile(r"\{([a-z_]+)(?:\|([^{}|]+))?\}")
_COMMENT = re.compile(r"^[ \t]*--.*\n", re.MULTILINE)
_LINE_BREAK = re.compile(r"\s*\n\s*")
_BOUNDARY = re.compile(r";\s*\n\s*\n")


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

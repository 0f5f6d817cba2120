"""Many rows in one statement, as a VALUES list.

A JSON document could hold them, too, but to read its fields costs SQLite more than the rest of the statement. Lists
have few lengths, so that few statements have to stay prepared.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any

LENGTHS = (500, 100, 10, 1)


@lru_cache
def values_list(rows: int, width: int) -> str:
    """`(?, ?), (?, ?)`: by place, since SQLite finds a name by a search through all of them."""
    return ", ".join([f"({', '.join('?' * width)})"] * rows)


def in_lists(rows: Sequence[Sequence[Any]]) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """The rows in order, as lists with their parameters."""
    place = 0
    for length in LENGTHS:
        while len(rows) - place >= length:
            part = rows[place : place + length]
            yield values_list(length, len(part[0])), tuple(chain.from_iterable(part))
            place += length

"""Many rows in one statement, as a VALUES list.

A JSON document would take them too, but to read its fields back costs SQLite more than the work that is done with
them. Lists come in few lengths, so that there are few statements to keep prepared.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any

LENGTHS = (100, 10, 1)


@lru_cache
def values_list(rows: int, width: int) -> str:
    """`(?, ?), (?, ?)`: by place, since SQLite looks up a name by going through all of them."""
    return ", ".join([f"({', '.join('?' * width)})"] * rows)


def in_lists(rows: Sequence[Sequence[Any]]) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """The rows in order, as lists with their parameters."""
    place = 0
    for length in LENGTHS:
        while len(rows) - place >= length:
            part = rows[place : place + length]
            yield values_list(length, len(part[0])), tuple(chain.from_iterable(part))
            place += length

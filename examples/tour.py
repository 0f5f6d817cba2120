"""What an example shows of itself: `windlass demo` calls each one's `tour` and prints what it checked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

Progress = Callable[[int, int], None]
"""Told how much of how much is done."""


@dataclass(frozen=True, slots=True)
class Check:
    """Something that happened, counted: what was expected, and what was seen."""

    what: str
    expected: object
    seen: object

    @property
    def right(self) -> bool:
        return self.expected == self.seen


Tour = Callable[[str, Progress], list[Check]]
"""Given the address of an empty database, does its round there."""

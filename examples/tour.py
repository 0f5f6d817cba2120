"""What an example shows of itself: `windlass demo` calls each one's `tour` and prints what it checked."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

import click

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


def show(tour: Tour, url: str | None) -> NoReturn:
    """The round of one example, told on the terminal; on SQLite in a temporary folder if no database is named."""
    with tempfile.TemporaryDirectory(prefix="windlass-example-") as folder:
        checks = tour(url or f"sqlite:///{folder}/example.db", lambda done, total: None)
    for check in checks:
        seen = check.seen if check.right else f"{check.seen}, not {check.expected}"
        click.echo(f"{'✓' if check.right else '✗'} {check.what}: {seen}")
    sys.exit(0 if all(check.right for check in checks) else 1)

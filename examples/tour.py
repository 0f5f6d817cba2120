"""The tour of an example: `windlass demo` calls the `tour` of each and prints its checks."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

import click

Progress = Callable[[int, int], None]
"""Called with the number of finished steps and the number of all steps."""


@dataclass(frozen=True, slots=True)
class Check:
    """One result of a tour: the expected value and the value that was seen."""

    what: str
    expected: object
    seen: object

    @property
    def right(self) -> bool:
        return self.expected == self.seen


Tour = Callable[[str, Progress], list[Check]]
"""Runs the example on an empty database with this URL, and returns its checks."""


def show(tour: Tour, url: str | None) -> NoReturn:
    """Run the tour of one example and print its checks. Without a URL it uses SQLite in a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="windlass-example-") as folder:
        checks = tour(url or f"sqlite:///{folder}/example.db", lambda done, total: None)
    for check in checks:
        seen = check.seen if check.right else f"{check.seen}, not {check.expected}"
        click.echo(f"{'✓' if check.right else '✗'} {check.what}: {seen}")
    sys.exit(0 if all(check.right for check in checks) else 1)

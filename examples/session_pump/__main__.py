"""`python -m examples.session_pump`: the round of tour.py, told on the terminal."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import click

from .tour import tour


@click.command()
@click.option("--url", help="An empty database; a SQLite file in a temporary folder if not given.")
def main(url: str | None) -> None:
    """Pump the messages of three sessions, and show that nothing was lost, doubled or out of order."""
    with tempfile.TemporaryDirectory() as folder:
        checks = tour(url or f"sqlite:///{Path(folder) / 'messages.db'}", lambda done, total: None)
    for check in checks:
        click.echo(f"{'ok' if check.right else 'WRONG':6}{check.what}: {check.seen} (expected {check.expected})")
    sys.exit(0 if all(check.right for check in checks) else 1)


if __name__ == "__main__":
    main()

"""`windlass doctor`: problems of a queue and of its database, and their remedies."""

from __future__ import annotations

import sys

import click
import msgspec
from rich.console import Console
from rich.text import Text

from ..logs import one_line
from .apps import find_existing
from .status import as_json, print_json, target, url


@click.command()
@target
@url
@as_json
def doctor(target: str | None, url: str | None, as_json: bool) -> None:
    """Find problems, and name their remedies. Exit code 1 if there is one."""
    app = find_existing(target, url)
    try:
        findings = app.examine()
    finally:
        app.close()
    if as_json:
        print_json([msgspec.structs.asdict(one) for one in findings])
    else:
        console = Console()
        width = max(len(one.name) for one in findings)
        for one in findings:
            mark = Text("✓", "green") if one.is_right else Text("✗", "bold red")
            console.print(mark, Text(f"{one.name:<{width}}  {one_line(one.text)}"), soft_wrap=True)
            if not one.is_right and one.remedy is not None:
                console.print(Text(f"  {'':<{width}}  → {one_line(one.remedy)}"), soft_wrap=True)
    if not all(one.is_right for one in findings):
        sys.exit(1)

"""`windlass queues | workers | schedules | stats`: show the state of a store. Also the options and the output that the
commands share. The actions on queues and schedules are in `pause.py`."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import click
import msgspec
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from .. import insight
from ..app import Windlass
from ..lifecycle import STATES
from ..logs import one_line
from .apps import find_existing

T = TypeVar("T")

target = click.argument("target", required=False, metavar="[jobs:app]")
url = click.option("--url", envvar="WINDLASS_URL", help="the URL of the store, if no app is given; or $WINDLASS_URL")
as_json = click.option("--json", "as_json", is_flag=True, help="print JSON, for scripts")


def print_json(value: Any) -> None:
    click.echo(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def print_table(
    columns: Sequence[str | Column], rows: Iterable[Sequence[object]], nothing: str, *, piped_width: int = 0
) -> None:
    """Print a table, at least `piped_width` wide if it is not printed on a terminal. Cells are plain
    text: markup and control characters in names and errors have no effect."""
    table = Table(*columns)
    count = 0
    for row in rows:
        table.add_row(*("" if cell is None else _plain(cell) for cell in row))
        count += 1
    if count:
        console = Console()
        if not console.is_terminal:
            console.width = max(console.width, piped_width)
        console.print(table)
    else:
        click.echo(nothing)


def _plain(cell: object) -> Text:
    return cell if isinstance(cell, Text) else Text(one_line(cell))


def read(target: str | None, url: str | None, look: Callable[[Windlass], T]) -> T:
    app = find_existing(target, url)
    try:
        return look(app)
    finally:
        app.close()


def _second(moment: str | None) -> str:
    """A moment of the facts, short enough for a table."""
    return (moment or "")[:19].replace("T", " ")


class ListByDefault(click.Group):
    """`windlass queues jobs:app` is `windlass queues list jobs:app`."""

    def parse_args(self, ctx: click.Context, args: builtins.list[str]) -> builtins.list[str]:
        if not args or (args[0] not in self.commands and args[0] != "--help"):
            args = ["list", *args]
        return super().parse_args(ctx, args)


@click.group(cls=ListByDefault)
def queues() -> None:
    """List the queues, pause and resume them."""


@queues.command("list")
@target
@url
@as_json
def list_queues(target: str | None, url: str | None, as_json: bool) -> None:
    """List the queues, with their jobs by state."""
    facts = read(target, url, lambda app: insight.queue_facts(app.counts(), app.paused()))
    if as_json:
        print_json(facts)
        return
    rows = [[one["name"], "paused" if one["paused"] else "", *(one[state] or "" for state in STATES)] for one in facts]
    print_table(["queue", "paused", *STATES], rows, "there are no queues yet")


@click.command()
@target
@url
@as_json
def stats(target: str | None, url: str | None, as_json: bool) -> None:
    """Count the jobs by type and state."""
    facts = read(target, url, lambda app: insight.stat_facts(app.counts()))
    if as_json:
        print_json(facts)
        return
    rows = [[name, *(by_state[state] or "" for state in STATES)] for name, by_state in facts["types"].items()]
    total = [["all", *(facts["states"][state] for state in STATES)]] if rows else []
    print_table(["type", *STATES], [*rows, *total], "there are no jobs yet")


@click.command()
@target
@url
@as_json
def workers(target: str | None, url: str | None, as_json: bool) -> None:
    """List the workers that are alive."""
    facts = read(target, url, lambda app: insight.worker_facts(app.workers()))
    if as_json:
        print_json(facts)
        return
    rows = [
        [
            one["name"],
            "all" if one["queues"] is None else ", ".join(one["queues"]),
            f"{one['running']} of {one['concurrency']}",
            _second(one["started_at"]),
            _second(one["heard_at"]),
        ]
        for one in facts
    ]
    print_table(["worker", "queues", "running", "since", "last heard of"], rows, "no worker is alive")


@click.group(cls=ListByDefault)
def schedules() -> None:
    """List the schedules, pause, resume and run them."""


@schedules.command("list")
@target
@url
@as_json
def list_schedules(target: str | None, url: str | None, as_json: bool) -> None:
    """List the schedules, with their next runs."""
    facts = read(target, url, lambda app: [insight.schedule_facts(one, one.next_runs) for one in app.schedules()])
    if as_json:
        print_json(facts)
        return
    rows = [
        [
            one["name"],
            one["cron"],
            one["timezone"],
            "paused" if one["paused"] else "",
            Text("\n".join(_second(run) for run in one["next"])),  # a line is too narrow for all five
        ]
        for one in facts
    ]
    named = [Column(name, overflow="fold") for name in ("schedule", "cron", "timezone")]
    print_table([*named, "paused", Column("next runs", no_wrap=True)], rows, "there are no schedules")

"""`windlass demo`: a tour of five example systems. Each checks its promises by counting."""

from __future__ import annotations

import logging
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

from ..errors import MissingExtra

TOURS = {
    "memory_extraction": "memories, extracted after the API has answered",
    "background_tasks": "background tasks that retry until they succeed",
    "agent_platform": "agents that split their work and join the results",
    "session_pump": "sessions, each in its own order",
    "order_pipeline": "orders, booked exactly once",
}
EMBEDDED = "embedded"

Databases = Callable[[str], str]  # makes an empty database for a tour, and returns its URL


def load(name: str) -> Any:
    """Import a tour. The examples are a separate package: `windlass_examples` in a wheel, `examples` in a checkout."""
    for package in ("windlass_examples", "examples"):
        try:
            return import_module(f"{package}.{name}.tour")
        except ModuleNotFoundError as error:
            if error.name != package:
                raise
    raise MissingExtra("the demo needs the examples, and they are not installed: install windlass again")


@click.command()
@click.option(
    "--postgres", is_flag=False, flag_value=EMBEDDED, metavar="[URL]", help="on PostgreSQL: embedded, or yours"
)
@click.option("--mongodb", is_flag=False, flag_value=EMBEDDED, metavar="[URL]", help="on MongoDB, embedded or yours")
def demo(postgres: str | None, mongodb: str | None) -> None:
    """Run a tour of five systems on SQLite in a temporary folder. It ends by itself. On your own server it works in
    databases that it creates and drops."""
    if postgres and mongodb:
        raise click.UsageError("--postgres and --mongodb are given: give one, not both")
    logging.getLogger("windlass").addHandler(logging.NullHandler())  # the tours fail jobs on purpose: no log of them
    console = Console()
    where = on_postgres(postgres) if postgres else on_mongodb(mongodb) if mongodb else on_sqlite()
    with where as database:
        found = run_all(console, database)
    console.print(closing_table(found))
    right = sum(check.right for checks in found.values() for check in checks)
    total = sum(len(checks) for checks in found.values())
    console.print(f"{right} of {total} checks hold.")
    sys.exit(0 if all(all_right(checks) for checks in found.values()) else 1)


def run_all(console: Console, database: Databases) -> dict[str, list[Any]]:
    """Run the tours and return the checks of each. A tour that raised an error has none."""
    found: dict[str, list[Any]] = {}
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=20), TextColumn("{task.elapsed:.1f} s"))
    with Progress(*columns, console=console) as progress:
        for name, title in TOURS.items():
            line = progress.add_task(f"  {title:52}", total=None)

            def advance(done: int, total: int, line: Any = line) -> None:
                progress.update(line, completed=done, total=total)

            try:
                found[name] = load(name).tour(database(name), advance)
            except Exception:
                console.print(traceback.format_exc(), markup=False)
                found[name] = []
            progress.update(line, description=f"{_mark(all_right(found[name]))} {title:52}")
            progress.stop_task(line)
    return found


def all_right(checks: list[Any]) -> bool:
    return bool(checks) and all(check.right for check in checks)


def _mark(right: bool) -> str:
    return "[green]✓[/]" if right else "[red]✗[/]"


def closing_table(found: dict[str, list[Any]]) -> Table:
    table = Table("what happened", "counted", "", title="Windlass: the database is the queue")
    for name, checks in found.items():
        table.add_row(
            f"[bold]{name.replace('_', ' ')}[/]",
            "" if checks else "raised an error",
            "" if checks else _mark(False),
        )
        for check in checks:
            seen = str(check.seen) if check.right else f"{check.seen}, not {check.expected}"
            table.add_row(Text(check.what), Text(seen), _mark(check.right))
        table.add_section()
    return table


# The databases of the tours


@contextmanager
def on_sqlite() -> Iterator[Databases]:
    with tempfile.TemporaryDirectory(prefix="windlass-demo-") as folder:
        yield lambda name: f"sqlite:///{Path(folder) / name}.db"


@contextmanager
def on_postgres(url: str) -> Iterator[Databases]:
    import psycopg
    from psycopg import sql

    with _server("PostgresServer", url) as server, psycopg.connect(server, autocommit=True) as connection:

        def make(name: str) -> str:
            drop(name)
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(_database(name))))
            return urlsplit(server)._replace(path=f"/{_database(name)}").geturl()

        def drop(name: str) -> None:
            connection.execute(sql.SQL("DROP DATABASE IF EXISTS {}").format(sql.Identifier(_database(name))))

        try:
            yield make
        finally:
            for name in TOURS:
                drop(name)


@contextmanager
def on_mongodb(url: str) -> Iterator[Databases]:
    from pymongo import MongoClient

    with _server("MongodbServer", url) as server:
        client: MongoClient[Any] = MongoClient(server)

        def make(name: str) -> str:
            client.drop_database(_database(name))
            return urlsplit(server)._replace(path=f"/{_database(name)}").geturl()

        with client:
            try:
                yield make
            finally:
                for name in TOURS:
                    client.drop_database(_database(name))


@contextmanager
def _server(kind: str, url: str) -> Iterator[str]:
    if url != EMBEDDED:
        yield url
        return
    from .. import embedded

    try:
        server = getattr(embedded, kind)().__enter__()
    except embedded.ServerError as error:
        raise click.ClickException(str(error)) from error
    try:
        yield server.url
    finally:
        server.close()


def _database(name: str) -> str:
    return f"windlass_demo_{name}"

"""The tables of docs/reference are complete: every option, command, route, event and error has its place there."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import click
import pytest

import windlass
from windlass.call import Options
from windlass.cli import main
from windlass.defaults import Defaults
from windlass.errors import WindlassError
from windlass.events import EVENTS, BatchEvent, Event
from windlass.lifecycle import STATES
from windlass.task_options import TaskOptions
from windlass.unique import Unique
from windlass.web import create_app
from windlass.web.endpoints import ENDPOINTS
from windlass.worker.worker import Worker

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"


def section(page: str, heading: str = "") -> str:
    """The text under a heading; without one, the whole page."""
    text = (REFERENCE / page).read_text()
    if not heading:
        return text
    found = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE)
    assert found, f"{page} has no section {heading!r}"
    return found[1]


def parameters(function: object) -> list[str]:
    assert callable(function)
    return [name for name in inspect.signature(function).parameters if name not in ("self", "app")]


PUBLIC = {name: getattr(windlass, name) for name in windlass.__all__}
ERRORS = [name for name, kind in PUBLIC.items() if isinstance(kind, type) and issubclass(kind, WindlassError)]

TABLES = {
    "task options": (section("tasks-and-jobs.md", "Task options"), TaskOptions.__struct_fields__),
    "defaults": (section("tasks-and-jobs.md", "Task options"), Defaults.__struct_fields__),
    "enqueue options": (section("tasks-and-jobs.md", "Enqueue options"), [*Options.__struct_fields__, "connection"]),
    "unique": (section("tasks-and-jobs.md", "Unique"), [n for n in parameters(Unique) if n != "key"]),
    "app": (section("app.md", "Windlass(…)"), parameters(windlass.Windlass)),
    "worker options": (section("workers.md", "Options"), parameters(Worker)),
    "events": (section("workers.md", "Events"), list(EVENTS)),
    "fields of events": (section("workers.md", "Events"), [*Event.__struct_fields__, "wait"]),
    "fields of batch events": (section("workers.md", "Events"), BatchEvent.__struct_fields__),
    "states": (section("tasks-and-jobs.md", "States"), STATES),
    "create_app": (section("http.md", "create_app"), parameters(create_app)),
    "errors": (section("errors.md"), ERRORS),
    "routes": (section("http.md", "Routes"), [f"{one.method} {one.path.replace(':path', '')}" for one in ENDPOINTS]),
}


@pytest.mark.parametrize("table", TABLES)
def test_a_table_has_every_name(table: str) -> None:
    text, names = TABLES[table]
    missing = [name for name in names if not re.search(rf"`{re.escape(name)}[`(=]", text)]
    assert not missing


def test_the_table_of_events_is_the_list_of_events_with_its_meanings() -> None:
    table = section("workers.md", "Events").partition("| event | meaning |\n|---|---|\n")[2].partition("\n\n")[0]
    rows = [re.fullmatch(r"\| `(\w+)` \| (.+) \|", line) for line in table.splitlines()]
    assert [(row[1], row[2]) for row in rows if row] == list(EVENTS.items())
    assert all(rows)


def commands(group: click.Group, prefix: str) -> dict[str, click.Command]:
    found: dict[str, click.Command] = {}
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            found |= commands(command, f"{prefix} {name}")
        else:
            found[f"{prefix} {name}"] = command
    return found


@pytest.mark.parametrize("name", commands(main, "windlass"))
def test_the_shell_s_commands_and_their_options_are_there(name: str) -> None:
    command = commands(main, "windlass")[name]
    text = section("workers.md", "Options") if name == "windlass worker" else section("shell.md", "Options")
    assert f"`{name}" in section("shell.md")
    for parameter in command.params:
        if isinstance(parameter, click.Option) and not parameter.hidden:
            assert all(f"`{option}" in text for option in parameter.opts), parameter.opts

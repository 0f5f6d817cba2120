"""`windlass jobs …` and `windlass enqueue`: show jobs, enqueue one. The actions on jobs are in `actions.py`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import click
from click.core import ParameterSource
from rich.console import Console
from rich.table import Column

from .. import codec, insight
from ..app import Windlass
from ..errors import InvalidInput, UnknownTask
from ..job import Job
from ..lifecycle import STATES
from .actions import ACTIONS, since
from .apps import find_app, find_existing
from .status import as_json, print_json, print_table, target, url


@click.group()
def jobs() -> None:
    """Show jobs, and act on them."""


for action in ACTIONS:
    jobs.add_command(action)


@jobs.command("list")
@target
@url
@click.option("--state", "--status", type=click.Choice(STATES))
@click.option("--type", "type_")
@click.option("--queue")
@click.option("--tenant")
@click.option("--chain", help="the id of its first job")
@since
@click.option("--limit", default=20, show_default=True, type=click.IntRange(1, 1000))
@click.option("--cursor", help="the cursor that the previous page printed")
@as_json
def list_(target: str | None, url: str | None, as_json: bool, type_: str | None, **filter: Any) -> None:
    """List a page of jobs, newest first."""
    app = find_existing(target, url)
    page = app.list(type=type_, **filter)
    app.close()
    if as_json:
        print_json({"jobs": [insight.job_facts(job) for job in page], "next_cursor": page.next_cursor})
        return
    rows = [
        [job.id, job.type, job.queue, job.state, _attempts(job), job.run_at.isoformat(" ", "seconds"), job.error]
        for job in page
    ]
    columns: list[str | Column] = [
        Column("id", no_wrap=True, min_width=36),
        "type",
        "queue",
        "state",
        "attempt",
        "due",
        "error",
    ]
    print_table(columns, rows, "there are no such jobs", piped_width=200)
    if page.next_cursor:
        click.echo(f"more: --cursor {page.next_cursor}")


def _attempts(job: Job) -> str:
    """Attempts made, and the most that are allowed. For a job that was enqueued by name, that is "?" until the first
    claim."""
    return f"{job.attempt}/{'?' if job.max_attempts_raw is None else job.max_attempts or '∞'}"


@jobs.command()
@click.argument("id")
@target
@url
@as_json
def show(id: str, target: str | None, url: str | None, as_json: bool) -> None:
    """Show all details of one job."""
    app = find_existing(target, url)
    facts = insight.job_details(app.require(id))
    why = app.explain(id)
    app.close()
    if as_json:
        print_json(facts | {"explanation": why})
        return
    shown = {name: value for name, value in facts.items() if value not in (None, "", [], {})}
    trace = shown.pop("traceback", None)
    print_table(["", ""], [[name, _text(value)] for name, value in shown.items()], "")
    if trace:
        click.echo(trace)
    click.echo(why)


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


@jobs.command()
@click.argument("id")
@target
@url
@as_json
def explain(id: str, target: str | None, url: str | None, as_json: bool) -> None:
    """Explain why a job is not running."""
    app = find_existing(target, url)
    why = app.explain(id)
    app.close()
    if as_json:
        print_json({"id": id, "explanation": why})
    else:
        click.echo(why)


@click.command()
@click.argument("arguments", nargs=-1, required=True, metavar="[jobs:app] TYPE [INPUT]")
@url
@click.option("--queue")
@click.option("--delay")
@click.option("--priority", type=int)
@click.option("--tenant")
@click.option("--unique")
@click.option("--unknown", is_flag=True, help="accept a TYPE that the app has no task for")
@as_json
def enqueue(arguments: tuple[str, ...], url: str | None, unknown: bool, as_json: bool, **options: Any) -> None:
    """Enqueue a job of this TYPE. INPUT is a JSON object with its arguments by name."""
    by_option = click.get_current_context().get_parameter_source("url") is ParameterSource.COMMANDLINE
    target, type, given = _arguments(arguments, by_option)
    if target is None and not url:
        raise click.UsageError("no app and no store is given: give jobs:app, --url or $WINDLASS_URL")
    by_store = target is None or "://" in target
    app = Windlass(target or url) if by_store else find_app(target, url)
    try:
        input = codec.read_text(given)
        if not isinstance(input, dict):
            raise InvalidInput(f"the input is an object of arguments by name, not {given:.60}")
        chosen = {name: value for name, value in options.items() if value is not None}
        job = app.enqueue(type, input, strict=not (by_store or unknown), **chosen)
    except UnknownTask as error:
        raise InvalidInput(f"{error} (to enqueue it anyway: --unknown)") from error
    finally:
        app.close()
    if as_json:
        print_json(insight.job_facts(job) | {"created": job.created})
    else:
        Console().print(f"{job.id} {'enqueued' if job.created else 'existed already'}", highlight=False)


def _arguments(given: Sequence[str], has_url: bool) -> tuple[str | None, str, str]:
    """Return the app, the type and the input. The app is None if `--url` or the environment names its store."""
    if has_url and len(given) == 3:
        raise click.UsageError("jobs:app and --url are given: give one, not both")
    if len(given) > 3:
        raise click.UsageError(f"{len(given)} arguments are too many: write INPUT as one argument, in quotes")
    has_input = len(given) == 2 and given[1].lstrip().startswith(("{", "["))  # no name of a type begins so
    if len(given) == 1 or has_url or has_input:
        return None, given[0], given[1] if len(given) > 1 else "{}"
    return given[0], given[1], given[2] if len(given) > 2 else "{}"

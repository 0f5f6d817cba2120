"""`windlass jobs …` and `windlass enqueue`: looking at jobs and acting on them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import click
from rich.console import Console

from .. import insight
from ..app import Windlass
from ..job import Job
from ..lifecycle import STATES
from .apps import find_app
from .looking import as_json, print_json, print_table, target, url


@click.group()
def jobs() -> None:
    """Look at jobs, and act on them."""


@jobs.command("list")
@target
@url
@click.option("--state", "--status", type=click.Choice(STATES))
@click.option("--type", "type_")
@click.option("--queue")
@click.option("--tenant")
@click.option("--chain", help="the id of its first job")
@click.option("--limit", default=20, show_default=True, type=click.IntRange(1, 1000))
@click.option("--cursor", help="as the page before has given it")
@as_json
def list_(target: str | None, url: str | None, as_json: bool, type_: str | None, **filter: Any) -> None:
    """A page of jobs, newest first."""
    app = find_app(target, url)
    page = app.list(type=type_, **filter)
    app.close()
    if as_json:
        print_json({"jobs": [insight.job_facts(job) for job in page], "next_cursor": page.next_cursor})
        return
    rows = [
        [job.id, job.type, job.queue, job.state, _attempts(job), job.run_at.isoformat(" ", "seconds"), job.error]
        for job in page
    ]
    print_table(["id", "type", "queue", "state", "attempt", "due", "error"], rows, "there are no such jobs")
    if page.next_cursor:
        click.echo(f"more: --cursor {page.next_cursor}")


def _attempts(job: Job) -> str:
    return f"{job.attempt}/{job.max_attempts or '∞'}"


@jobs.command()
@click.argument("id")
@target
@url
@as_json
def show(id: str, target: str | None, url: str | None, as_json: bool) -> None:
    """All that there is to know of one job."""
    app = find_app(target, url)
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
    """Why is this job not running?"""
    app = find_app(target, url)
    why = app.explain(id)
    app.close()
    if as_json:
        print_json({"id": id, "explanation": why})
    else:
        click.echo(why)


def _acting(name: str, verb: str, help: str, act: Callable[[Windlass, str], Job | None]) -> None:
    @jobs.command(name, help=help)
    @click.argument("ids", nargs=-1, required=True, metavar="ID…")
    @click.option("--app", "target", metavar="jobs:app")
    @url
    @as_json
    def command(ids: tuple[str, ...], target: str | None, url: str | None, as_json: bool) -> None:
        app = find_app(target, url)
        done = [(id, act(app, id)) for id in ids]
        app.close()
        if as_json:
            print_json([{"id": id} if job is None else insight.job_facts(job) for id, job in done])
        else:
            for id, job in done:
                click.echo(f"{id} {verb}" + ("" if job is None else f": {job.state}"))


_acting("retry", "is brought back", "Bring failed or cancelled jobs back.", lambda app, id: app.retry(id))
_acting("cancel", "is cancelled", "Cancel jobs; a running one is asked to end.", lambda app, id: app.cancel(id))
_acting("run-now", "is due", "Do not wait for their time.", lambda app, id: app.run_now(id))
_acting("delete", "is deleted", "Remove jobs, each with its chain.", lambda app, id: app.delete(id))


@click.command()
@click.argument("target", metavar="jobs:app")
@click.argument("type")
@click.argument("input", default="{}")
@click.option("--queue")
@click.option("--delay")
@click.option("--priority", type=int)
@click.option("--tenant")
@click.option("--unique")
@as_json
def enqueue(target: str, type: str, input: str, as_json: bool, **options: Any) -> None:
    """Enqueue a job of this TYPE; INPUT is a JSON object of its arguments."""
    try:
        arguments = json.loads(input)
    except ValueError as error:
        raise click.UsageError(f"the input is not JSON: {error}") from error
    app = Windlass(target) if "://" in target else find_app(target, None)
    job = app.enqueue(type, arguments, **{name: value for name, value in options.items() if value is not None})
    app.close()
    if as_json:
        print_json(insight.job_facts(job) | {"created": job.created})
    else:
        Console().print(f"{job.id} {'enqueued' if job.created else 'was there already'}", highlight=False)

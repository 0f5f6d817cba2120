"""`windlass jobs …` and `windlass enqueue`: show jobs, act on them, enqueue one."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from typing import Any

import click
from click.core import ParameterSource
from rich.console import Console
from rich.table import Column

from .. import codec, insight
from ..app import Windlass
from ..call import check_id
from ..errors import Conflict, InvalidInput, JobNotFound, UnknownTask
from ..job import Job
from ..lifecycle import STATES
from ..logs import one_line
from .apps import find_app, find_existing
from .status import as_json, print_json, print_table, target, url


@click.group()
def jobs() -> None:
    """Show jobs, and act on them."""


@jobs.command("list")
@target
@url
@click.option("--state", "--status", type=click.Choice(STATES))
@click.option("--type", "type_")
@click.option("--queue")
@click.option("--tenant")
@click.option("--chain", help="the id of its first job")
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


def _add_action(
    name: str, verb: str, help: str, act: Callable[..., Job | None], *options: Callable[[Any], Any]
) -> None:
    @jobs.command(name, help=help)
    @click.argument("ids", nargs=-1, required=True, metavar="ID…")
    @click.option("--app", "target", metavar="jobs:app")
    @url
    @as_json
    def command(ids: tuple[str, ...], target: str | None, url: str | None, as_json: bool, **flags: bool) -> None:
        for id in ids:
            if ":" in id:
                raise click.UsageError(f"{id} is not an id. To name the app: --app {id}")
        checked = [str(check_id(id)) for id in ids]  # a wrong id is an error before any job is changed
        app = find_existing(target, url)
        results: list[Any] = []
        try:
            for id in checked:
                try:
                    job = act(app, id, **flags)
                except (JobNotFound, Conflict) as error:  # report it, and continue with the next job
                    results.append({"id": id, "refused": one_line(error)})
                    line = f"Error: {one_line(error)}"
                else:
                    results.append({"id": id} if job is None else insight.job_facts(job))
                    line = f"{id} {_done(verb, job)}"
                if not as_json:
                    click.echo(line, err="refused" in results[-1])
        finally:  # report the changes that were made, even if the database is lost in the middle
            app.close()
            if as_json:
                print_json(results)
        if any("refused" in one for one in results):
            sys.exit(1)

    for option in options:
        command = option(command)


def _done(verb: str, job: Job | None) -> str:
    if job is None:
        return verb
    if job.cancel_requested:
        return "is to be cancelled: its worker ends it"
    return f"{verb}: {job.state}"


_add_action("retry", "is retried", "Retry failed or cancelled jobs now.", lambda app, id: app.retry(id))
_add_action("cancel", "is cancelled", "Cancel jobs. Their workers end running ones.", lambda app, id: app.cancel(id))
_add_action("run-now", "is due", "Make pending jobs due now.", lambda app, id: app.run_now(id))
_add_action(
    "delete",
    "is deleted",
    "Delete jobs, each with its chain.",
    lambda app, id, cascade: app.delete(id, cascade=cascade),
    click.option(
        "--cascade", is_flag=True, help="Also delete the chains that they waited for, if no other job waits for them."
    ),
)


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

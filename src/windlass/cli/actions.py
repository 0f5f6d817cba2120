"""`windlass jobs retry | cancel | run-now | delete`: act on jobs, by their ids or on all that match a filter."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import click
from rich.prompt import Confirm

from .. import insight
from ..app import Windlass
from ..call import check_id, check_moment
from ..duration import to_seconds
from ..errors import Conflict, InvalidInput, JobNotFound
from ..job import Job
from ..lifecycle import LIVE, STATES
from ..logs import one_line
from .apps import find_existing
from .status import as_json, print_json, url

PAGE, MOST_COUNTED = 1000, 10_000  # jobs that are counted before the question


class Action(NamedTuple):
    name: str
    done: str  # said of a job, after its id
    help: str
    one: Callable[..., Job | None]
    many: Callable[..., int]
    states: Sequence[str | None]  # of the jobs that it takes, if no state is given


def _read_since(_context: click.Context, _option: click.Parameter, given: str | None) -> datetime | None:
    if given is None:
        return None
    try:
        if "-" in given:
            return check_moment("since", datetime.fromisoformat(given))
        return datetime.now(UTC) - timedelta(seconds=to_seconds(given))
    except (InvalidInput, ValueError, OverflowError) as error:
        raise click.BadParameter(f"{one_line(error)} (give 2h, or 2030-01-31T08:00:00+00:00)") from error


since = click.option(
    "--since", callback=_read_since, metavar="2h", help="finished (or created, if live) since: a duration or a moment"
)


def _make(action: Action, *options: Callable[[Any], Any]) -> click.Command:
    @click.command(action.name, help=action.help + " Give their ids, or a filter for all that match.")
    @click.argument("ids", nargs=-1, metavar="[ID…]")
    @click.option("--app", "target", metavar="jobs:app")
    @url
    @click.option("--state", "--status", type=click.Choice(STATES))
    @click.option("--type", "type_")
    @click.option("--queue")
    @click.option("--tenant")
    @since
    @click.option("--all", "all_", is_flag=True, help="without a filter: all jobs")
    @click.option("--yes", is_flag=True, help="with a filter: do not ask")
    @as_json
    def command(
        ids: tuple[str, ...], target: str | None, url: str | None, as_json: bool, yes: bool, type_: str | None,
        all_: bool, cascade: bool = False, **given: Any,
    ) -> None:  # fmt: skip
        filter = {name: value for name, value in {**given, "type": type_}.items() if value is not None}
        filter |= {"all": True} if all_ else {}
        _check(action, ids, filter)
        if cascade and not ids:
            raise click.UsageError("--cascade goes with ids")
        app = find_existing(target, url)
        try:
            if ids:
                _act_on_each(app, action, ids, {"cascade": True} if cascade else {}, as_json=as_json)
            else:
                _act_on_all(app, action, filter, as_json=as_json, yes=yes)
        finally:
            app.close()

    for option in options:
        command = option(command)
    return command


def _check(action: Action, ids: Sequence[str], filter: dict[str, Any]) -> None:
    """A wrong id is an error before any job is changed."""
    for id in ids:
        if ":" in id:
            raise click.UsageError(f"{id} is not an id. To name the app: --app {id}")
        check_id(id)
    if ids and filter:
        raise click.UsageError("ids and a filter are given: give one of them, not both")
    if not ids and not filter:
        raise click.UsageError(f"no job is given: windlass jobs {action.name} ID, or a filter such as --type, or --all")


def _act_on_each(app: Windlass, action: Action, ids: Sequence[str], options: dict[str, bool], *, as_json: bool) -> None:
    results: list[Any] = []
    try:
        for id in (str(check_id(one)) for one in ids):
            try:
                job = action.one(app, id, **options)
            except (JobNotFound, Conflict) as error:  # report it, and continue with the next job
                results.append({"id": id, "refused": one_line(error)})
                line = f"Error: {one_line(error)}"
            else:
                results.append({"id": id} if job is None else insight.job_facts(job))
                line = f"{id} {_done(action, job)}"
            if not as_json:
                click.echo(line, err="refused" in results[-1])
    finally:  # report the changes that were made, even if the database is lost in the middle
        if as_json:
            print_json(results)
    if any("refused" in one for one in results):
        sys.exit(1)


def _done(action: Action, job: Job | None) -> str:
    if job is None:
        return f"is {action.done}"
    if job.cancel_requested:
        return "is to be cancelled: its worker ends it"
    return f"is {action.done}: {job.state}"


def _act_on_all(app: Windlass, action: Action, filter: dict[str, Any], *, as_json: bool, yes: bool) -> None:
    if not yes:
        count = _count(app, action, filter)
        if count == 0:
            print_json({"jobs": 0}) if as_json else click.echo("there are no such jobs")
            return
        if not sys.stdin.isatty():
            these = "1 job matches: to act on it" if count == 1 else f"{_number(count)} match: to act on them"
            raise click.UsageError(f"{these} in a script, say --yes")
        more = ", each with its chain" if action.name == "delete" else ""
        if not Confirm.ask(f"{action.name} {_number(count)}{more}?", default=False):
            sys.exit(1)
    done = action.many(app, **filter)
    if as_json:
        print_json({"jobs": done})
    else:
        click.echo(f"{_number(done)}: {action.done}")


def _count(app: Windlass, action: Action, filter: dict[str, Any]) -> int:
    """How many jobs match; one more than MOST_COUNTED if they are more."""
    count = 0
    for state in [filter["state"]] if "state" in filter else action.states:
        chosen = {name: value for name, value in filter.items() if name not in ("state", "all")}
        cursor: str | None = None
        while count <= MOST_COUNTED:
            page = app.list(state=state, limit=PAGE, cursor=cursor, **chosen)
            count, cursor = count + len(page), page.next_cursor
            if cursor is None:
                break
    return min(count, MOST_COUNTED + 1)


def _number(count: int) -> str:
    if count > MOST_COUNTED:
        return f"more than {MOST_COUNTED:,} jobs"
    return "1 job" if count == 1 else f"{count:,} jobs"


CASCADE = click.option(
    "--cascade", is_flag=True, help="also delete the chains that they waited for, if no other job waits for them"
)

ACTIONS = (
    _make(Action(
        "retry", "retried", "Retry failed or cancelled jobs now.", Windlass.retry, Windlass.retry_many, ["failed"]
    )),
    _make(Action(
        "cancel", "cancelled", "Cancel jobs. Their workers end running ones.", Windlass.cancel, Windlass.cancel_many,
        sorted(LIVE),
    )),
    _make(Action("run-now", "due", "Make pending jobs due now.", Windlass.run_now, Windlass.run_now_many, ["pending"])),
    _make(
        Action("delete", "deleted", "Delete jobs, each with its chain.", Windlass.delete, Windlass.delete_many, [None]),
        CASCADE,
    ),
)  # fmt: skip

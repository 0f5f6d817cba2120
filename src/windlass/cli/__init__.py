"""The shell: `windlass …`. Exit codes: 0 done, 1 failed, 2 wrong use."""

from __future__ import annotations

import click

from .. import __version__
from ..errors import InvalidInput, WindlassError
from ..logs import one_line
from .apps import find_app
from .dashboard import dashboard
from .demo import demo
from .doctor import doctor
from .jobs import enqueue, jobs
from .pause import queues, schedules
from .status import stats, target, url, workers
from .worker import worker


class Group(click.Group):
    """Prints each `WindlassError` as one line, without a traceback."""

    def invoke(self, context: click.Context) -> object:
        try:
            return super().invoke(context)
        except InvalidInput as error:
            raise click.UsageError(one_line(error)) from error
        except WindlassError as error:
            raise click.ClickException(one_line(error)) from error


@click.group(cls=Group)
@click.version_option(__version__, prog_name="windlass")
def main() -> None:
    """A durable job queue that lives in the database you already have."""


@main.command()
@target
@url
def migrate(target: str | None, url: str | None) -> None:
    """Create the schema, or upgrade it."""
    names = find_app(target, url).migrate()
    for name in names:
        click.echo(f"applied {name}")
    if not names:
        click.echo("the schema is up to date")


@main.command()
@target
@url
def sql(target: str | None, url: str | None) -> None:
    """Print the migrations as SQL, to read them or to run them as another user."""
    click.echo(find_app(target, url).store.script())


for command in (demo, dashboard, doctor, worker, jobs, enqueue, queues, schedules, stats, workers):
    main.add_command(command)

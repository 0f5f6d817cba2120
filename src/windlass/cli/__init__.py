"""The shell: `windlass …`. Exit codes: 0 done, 1 failed, 2 wrong use."""

from __future__ import annotations

import importlib
import sys

import click

from .. import __version__
from ..app import Windlass
from ..errors import InvalidInput, WindlassError
from .demo import demo


class Group(click.Group):
    """Errors that we raise on purpose are told in one line."""

    def invoke(self, context: click.Context) -> object:
        try:
            return super().invoke(context)
        except InvalidInput as error:
            raise click.UsageError(str(error)) from error
        except WindlassError as error:
            raise click.ClickException(str(error)) from error


@click.group(cls=Group)
@click.version_option(__version__, prog_name="windlass")
def main() -> None:
    """A durable job queue that lives in the database you already have."""


def find_app(target: str | None, url: str | None) -> Windlass:
    """The app that `jobs:app` names; or, where no handler is needed, one for the URL alone."""
    if target is None:
        return Windlass(url)
    module_name, _, name = target.partition(":")
    sys.path.insert(0, "")
    try:
        found = getattr(importlib.import_module(module_name), name or "app")
    except (ImportError, AttributeError, ValueError) as error:
        raise click.UsageError(f"{target}: {error}") from error
    if not isinstance(found, Windlass):
        raise click.UsageError(f"{target} is {type(found).__name__}, not a Windlass app")
    return found


target = click.argument("target", required=False, metavar="[jobs:app]")
url = click.option("--url", envvar="WINDLASS_URL", help="the store, where no app is named; or $WINDLASS_URL")


@main.command()
@target
@url
def migrate(target: str | None, url: str | None) -> None:
    """Create the schema, or bring it up to date."""
    names = find_app(target, url).migrate()
    for name in names:
        click.echo(f"applied {name}")
    if not names:
        click.echo("the schema is up to date")


@main.command()
@target
@url
def sql(target: str | None, url: str | None) -> None:
    """Print the schema's migrations, to be read, or run by someone who may."""
    click.echo(find_app(target, url).store.script())


main.add_command(demo)

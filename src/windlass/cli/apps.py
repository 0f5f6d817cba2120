"""Find the app that `jobs:app` names."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import click

from ..app import Windlass
from ..stores.sqlite.connections import SqliteConnections


def find_existing(target: str | None, url: str | None) -> Windlass:
    """`find_app`, for a command that creates no database."""
    if target is None and not url and not Path("windlass.db").exists():
        raise click.UsageError("no app and no store is given: give jobs:app, --url or $WINDLASS_URL")
    app = find_app(target, url)
    connections = app.store.connections
    if isinstance(connections, SqliteConnections) and not connections.in_memory and not Path(connections.path).exists():
        raise click.UsageError(
            f"there is no file {connections.path}: no job was enqueued in it yet, or the path is wrong"
        )
    return app


def find_app(target: str | None, url: str | None) -> Windlass:
    """Return the app that `jobs:app` names. Without a name, make one for the URL: it has no handlers."""
    if target is None:
        return Windlass(url)
    module_name, _, name = target.partition(":")
    if module_name.endswith(".py"):
        module = module_name.removesuffix(".py").replace("/", ".")
        raise click.UsageError(f"{target}: an app is named by its module, as in {module}:{name or 'app'}")
    sys.path.insert(0, "")
    try:
        found = getattr(importlib.import_module(module_name), name or "app")
    except (ImportError, AttributeError, ValueError) as error:
        raise click.UsageError(f"{target}: {error}") from error
    if not isinstance(found, Windlass):
        raise click.UsageError(f"{target} is {type(found).__name__}, not a Windlass app; give module:name of the app")
    return found

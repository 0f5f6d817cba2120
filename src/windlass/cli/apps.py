"""Find the app that `jobs:app` names."""

from __future__ import annotations

import importlib
import sys

import click

from ..app import Windlass


def find_app(target: str | None, url: str | None) -> Windlass:
    """Return the app that `jobs:app` names. Without a name, make one for the URL: it has no handlers."""
    if target is None:
        return Windlass(url)
    module_name, _, name = target.partition(":")
    sys.path.insert(0, "")
    try:
        found = getattr(importlib.import_module(module_name), name or "app")
    except (ImportError, AttributeError, ValueError) as error:
        raise click.UsageError(f"{target}: {error}") from error
    if not isinstance(found, Windlass):
        raise click.UsageError(f"{target} is {type(found).__name__}, not a Windlass app; give module:name of the app")
    return found

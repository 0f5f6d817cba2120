"""`python -m examples.background_tasks`: run the tour. `process` and `create` are for real use."""

from __future__ import annotations

import json
import logging
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from windlass import InvalidInput, Windlass

from ..tour import show
from .memory import MemoryService
from .processor import Processor
from .settings import Settings, SettingsError, load_settings
from .tasks import TaskRepository
from .tour import tour


@click.group(invoke_without_command=True)
@click.option("--url", help="The database; $WINDLASS_URL if not given. The tour needs an empty one.")
@click.option("--settings", "file", type=click.Path(path_type=Path), help="A TOML file with a table [tasks].")
@click.pass_context
def main(context: click.Context, url: str | None, file: Path | None) -> None:
    """Background tasks. Without a command: run the tour. It ends by itself."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("windlass").setLevel(logging.WARNING)
    try:
        settings = load_settings(file, os.environ)
    except SettingsError as error:
        raise click.UsageError(f"settings: {error}") from None
    context.obj = (url, settings)
    if context.invoked_subcommand is None:
        show(tour, url)


@main.command()
@click.option("--folder", type=click.Path(path_type=Path), required=True, help="The folder of entries and vectors.")
@click.pass_obj
def process(given: tuple[str | None, Settings], folder: Path) -> None:
    """Process tasks until SIGTERM or SIGINT."""
    url, settings = given
    folder.mkdir(parents=True, exist_ok=True)
    with opened(url) as app:
        service = MemoryService(app, folder, settings.batch_size)
        processor = Processor(app, service.handlers, settings)

        def stop(*_: object) -> None:
            # In another thread, because the interrupted thread may hold the lock that `stop` needs.
            threading.Thread(target=processor.stop, daemon=True).start()

        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, stop)
        processor.run()


@main.command()
@click.argument("type")
@click.argument("body", default="{}")
@click.option("--name", help="Makes it a singleton.")
@click.option("--priority", type=int, default=0, help="Higher first.")
@click.option("--expires", help="The task is dropped if it was not started within this time, such as 1h.")
@click.option("--max-attempts", type=int, help="The task becomes a dead letter after so many failures; default: never.")
@click.pass_obj
def create(
    given: tuple[str | None, Settings],
    type: str,
    body: str,
    name: str | None,
    priority: int,
    expires: str | None,
    max_attempts: int | None,
) -> None:
    """Create a task of TYPE with a JSON object as its BODY."""
    with opened(given[0]) as app:
        try:
            task = TaskRepository(app).create(
                type, json.loads(body), name=name, priority=priority, expires=expires, max_attempts=max_attempts
            )
        except (ValueError, InvalidInput) as error:
            raise click.UsageError(str(error)) from None
    click.echo(task.id)


@contextmanager
def opened(url: str | None) -> Iterator[Windlass]:
    app = Windlass(url)
    try:
        yield app
    finally:
        app.close()


if __name__ == "__main__":
    main()

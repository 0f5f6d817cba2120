"""`windlass pause | resume`: stop and start the claims of a queue."""

from __future__ import annotations

from collections.abc import Callable

import click

from ..app import Windlass
from ..call import check_name
from .apps import find_existing
from .status import url


def _command(name: str, done: str, help: str, act: Callable[[Windlass, str], None]) -> click.Command:
    @click.command(name, help=help)
    @click.argument("queues", nargs=-1, required=True, metavar="QUEUE…")
    @click.option("--app", "target", metavar="jobs:app")
    @url
    def command(queues: tuple[str, ...], target: str | None, url: str | None) -> None:
        for queue in queues:  # a wrong name is an error before any queue is changed
            if ":" in queue and target is None:
                raise click.UsageError(f"{queue} looks like an app, not a queue. To name the app: --app {queue}")
            check_name("queue", queue)
        app = find_existing(target, url)
        try:
            for queue in queues:
                act(app, queue)
                click.echo(f"{queue} {done}")
        finally:
            app.close()

    return command


pause = _command(
    "pause", "is paused", "Pause queues: workers claim none of their jobs. Jobs that run continue.", Windlass.pause
)
resume = _command("resume", "is resumed", "Resume paused queues.", Windlass.resume)

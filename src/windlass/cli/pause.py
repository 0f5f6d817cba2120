"""`windlass queues pause | resume` and `windlass schedules pause | resume | run`."""

from __future__ import annotations

from collections.abc import Callable

import click

from ..app import Windlass
from ..call import check_name
from .apps import find_existing
from .status import queues, schedules, url

__all__ = ["queues", "schedules"]

Act = Callable[[Windlass, str], str]  # its answer is said of the name


def _command(kind: str, name: str, help: str, act: Act) -> click.Command:
    @click.command(name, help=help)
    @click.argument("names", nargs=-1, required=True, metavar=f"{kind.upper()}…")
    @click.option("--app", "target", metavar="jobs:app")
    @url
    def command(names: tuple[str, ...], target: str | None, url: str | None) -> None:
        for one in names:  # a wrong name is an error before any of them is changed
            if ":" in one and target is None:
                raise click.UsageError(f"{one} looks like an app, not a {kind}. To name the app: --app {one}")
            check_name(kind, one)
        app = find_existing(target, url)
        try:
            for one in names:
                click.echo(f"{one} {act(app, one)}")
        finally:
            app.close()

    return command


def _then_say(act: Callable[[Windlass, str], None], said: str) -> Act:
    def acted(app: Windlass, name: str) -> str:
        act(app, name)
        return said

    return acted


def _run_schedule(app: Windlass, name: str) -> str:
    job = app.run_schedule(name)
    return f"is run: job {job.id}" if job.created else f"has made no job: job {job.id} has its unique key"


PAUSE_QUEUES = "Pause queues: workers claim none of their jobs. Jobs that run continue."
PAUSE_SCHEDULES = "Pause schedules: they make no jobs until they are resumed."
RESUME_SCHEDULES = "Resume schedules with their next tick from now."

for command in (
    _command("queue", "pause", PAUSE_QUEUES, _then_say(Windlass.pause, "is paused")),
    _command("queue", "resume", "Resume paused queues.", _then_say(Windlass.resume, "is resumed")),
):
    queues.add_command(command)

for command in (
    _command("schedule", "pause", PAUSE_SCHEDULES, _then_say(Windlass.pause_schedule, "is paused")),
    _command("schedule", "resume", RESUME_SCHEDULES, _then_say(Windlass.resume_schedule, "is resumed")),
    _command("schedule", "run", "Enqueue the jobs of schedules now, beside their ticks.", _run_schedule),
):
    schedules.add_command(command)

"""`windlass worker jobs:app`: run a worker, or several worker processes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from typing import Any

import click

from ..app import Windlass
from ..duration import to_seconds
from .apps import find_app


def parse_queues(text: str | None) -> dict[str, int | None] | None:
    """Read `mail:10,default`: names of queues, each with an optional limit."""
    if text is None:
        return None
    queues: dict[str, int | None] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, colon, limit = part.rpartition(":")
        if not colon:
            queues[part] = None
        elif limit.isdigit() and int(limit) > 0:
            queues[name] = int(limit)
        else:
            raise click.BadParameter(f"{part}: a limit is a number, as in mail:10", param_hint="--queues")
    if not queues:
        raise click.BadParameter("it names no queue; leave it out to serve all queues", param_hint="--queues")
    return queues


@click.command()
@click.argument("target", metavar="jobs:app")
@click.option("--queues", help="the queues to serve, with optional limits: mail:10,default; all queues if not given")
@click.option("--concurrency", default=50, show_default=True, help="jobs at once, in each process")
@click.option("--processes", type=click.IntRange(min=1), help="number of worker processes; a dead one is restarted")
@click.option("--grace", default="30s", show_default=True, help="time that running jobs have to end after a stop")
@click.option("--poll-interval", default="5s", show_default=True, help="time between polls without a notification")
@click.option("--rescue-interval", default="5s", show_default=True, help="time between rescues of dead workers' jobs")
@click.option("--until-idle", is_flag=True, help="end when no job is due")
@click.option("--max-jobs", type=click.IntRange(min=1), help="end after this number of jobs")
@click.option("--supervised-by", type=int, hidden=True)
def worker(target: str, processes: int | None, supervised_by: int | None, **options: Any) -> None:
    """Run jobs. SIGTERM stops the worker after its running jobs, a second SIGTERM stops it now."""
    if supervised_by is not None:
        from ..worker.watchdog import die_with_parent

        die_with_parent()
    app = find_app(target, None)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    options["queues"] = parse_queues(options["queues"])
    for name in ("grace", "poll_interval", "rescue_interval"):
        to_seconds(options[name])
    if processes is not None and supervised_by is None:
        from ..worker.supervisor import Supervisor

        arguments = _command_line(target, options)
        sys.exit(Supervisor(app, arguments, processes, grace_seconds=to_seconds(options["grace"])).run())
    with contextlib.suppress(KeyboardInterrupt):
        app.close()  # the import of the app may have opened connections
        run_in_loop(app, options, supervised_by)


def run_in_loop(app: Windlass, options: dict[str, Any], supervised_by: int | None) -> None:
    from ..worker.alone import run_alone
    from ..worker.status import show
    from ..worker.supervisor import Reporter
    from ..worker.worker import Worker

    worker = Worker(app, **options)

    async def work() -> int:
        if supervised_by is not None:
            loop = asyncio.get_running_loop()
            worker.report = Reporter(supervised_by, lambda: loop.call_soon_threadsafe(worker.stopping.begin))
        status = asyncio.create_task(show(worker))
        try:
            return await worker.run()
        finally:
            status.cancel()
            await app.aclose()

    run_alone(worker, work, is_program=True, supervised=supervised_by is not None)


def _command_line(target: str, options: dict[str, Any]) -> list[str]:
    """The command line of a child process, with the same options."""
    arguments = ["worker", target]
    for name, value in options.items():
        if name == "queues" and value is not None:
            value = ",".join(queue if limit is None else f"{queue}:{limit}" for queue, limit in value.items())
        if value is True:
            arguments.append(f"--{name.replace('_', '-')}")
        elif value not in (None, False):
            arguments += [f"--{name.replace('_', '-')}", str(value)]
    return arguments

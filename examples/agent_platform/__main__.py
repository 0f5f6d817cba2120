"""`python -m examples.agent_platform`: a round through the example; `serve` and `work` are for real use."""

from __future__ import annotations

import os
import sys

import click

from windlass import WindlassError

from ..tour import show
from .platform import Platform
from .settings import SettingsError, load_settings
from .tour import tour


@click.group(invoke_without_command=True)
@click.option("--url", help="The database; $WINDLASS_URL if not given. Without a command: an empty one.")
@click.pass_context
def main(context: click.Context, url: str | None) -> None:
    """A platform of agents: without a command, a round through the example, which ends by itself."""
    if url:
        os.environ["WINDLASS_URL"] = url
    if context.invoked_subcommand is None:
        show(tour, url)


@main.command()
@click.option("--host", default="127.0.0.1", show_default=True)
@click.option("--port", default=8000, show_default=True)
def serve(host: str, port: int) -> None:
    """The HTTP API."""
    import uvicorn

    from .web import create_web

    try:
        web = create_web(start())
    except SettingsError as error:
        raise click.UsageError(str(error)) from None
    uvicorn.run(web, host=host, port=port, log_level="warning")


@main.command()
def work() -> None:
    """One to three workers, as many as $AGENTS_REPLICAS says, until SIGTERM or SIGINT."""
    platform = start()
    platform.app.rescue()  # What the workers before us have left behind need not wait for the first of ours to look.
    platform.app.close()
    replicas, slots = str(platform.settings.replicas), str(platform.settings.concurrency)
    command = [sys.executable, "-m", "windlass", "worker", f"{__package__}.worker:app", "--processes", replicas]
    # The queue's limit lets a worker hold no more than it runs: a turn may take minutes, and none is to lie ready
    # behind another while a replica is idle.
    os.execv(sys.executable, [*command, "--concurrency", slots, "--queues", f"default:{slots}"])


def start() -> Platform:
    try:
        return Platform(load_settings(os.environ))
    except (SettingsError, WindlassError) as error:
        raise click.UsageError(f"settings: {error}") from None


if __name__ == "__main__":
    main()

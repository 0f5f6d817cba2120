"""`python -m examples.agent_platform`: run the tour. `serve` and `work` are for real use."""

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
@click.option("--url", help="The database; $WINDLASS_URL if not given. The tour needs an empty one.")
@click.pass_context
def main(context: click.Context, url: str | None) -> None:
    """A platform of agents. Without a command: run the tour. It ends by itself."""
    if url:
        os.environ["WINDLASS_URL"] = url
    if context.invoked_subcommand is None:
        show(tour, url)


@main.command()
@click.option("--host", default="127.0.0.1", show_default=True)
@click.option("--port", default=8000, show_default=True)
def serve(host: str, port: int) -> None:
    """Serve the HTTP API."""
    import uvicorn

    from .web import create_web

    try:
        web = create_web(start())
    except SettingsError as error:
        raise click.UsageError(str(error)) from None
    uvicorn.run(web, host=host, port=port, log_level="warning")


@main.command()
def work() -> None:
    """Run $AGENTS_REPLICAS workers, one to three, until SIGTERM or SIGINT."""
    platform = start()
    platform.app.rescue()  # now, because the first worker would look for the jobs of dead workers only later
    platform.app.close()
    replicas, slots = str(platform.settings.replicas), str(platform.settings.concurrency)
    command = [sys.executable, "-m", "windlass", "worker", f"{__package__}.worker:app", "--processes", replicas]
    # With the queue's limit a worker claims no more jobs than it runs. A turn may take minutes, and no job should wait
    # in the buffer of a busy replica while another is idle.
    os.execv(sys.executable, [*command, "--concurrency", slots, "--queues", f"default:{slots}"])


def start() -> Platform:
    try:
        return Platform(load_settings(os.environ))
    except (SettingsError, WindlassError) as error:
        raise click.UsageError(f"settings: {error}") from None


if __name__ == "__main__":
    main()

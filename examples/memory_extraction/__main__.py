"""`python -m examples.memory_extraction`: run the tour. `serve` and `worker` run the real system."""

from __future__ import annotations

import asyncio
import os

import click

from windlass import WindlassError

from ..tour import show
from .batch import run_batch
from .extraction import MemoryExtraction
from .settings import Settings, SettingsError
from .tour import tour


@click.group(invoke_without_command=True)
@click.option("--url", help="The database; else $WINDLASS_URL, else a file in a temporary folder (the tour).")
@click.pass_context
def main(context: click.Context, url: str | None) -> None:
    """Without a command: run a short tour on an empty database. It ends by itself."""
    if context.invoked_subcommand is not None:
        environment = os.environ | ({"WINDLASS_URL": url} if url else {})
        try:
            context.obj = MemoryExtraction(Settings.from_environment(environment))
            context.obj.prepare()
        except (SettingsError, WindlassError) as error:
            raise click.UsageError(str(error)) from None
    else:
        show(tour, url)


@main.command()
@click.option("--host", default="127.0.0.1", show_default=True)
@click.option("--port", default=8000, show_default=True)
@click.pass_obj
def serve(memory: MemoryExtraction, host: str, port: int) -> None:
    """Serve the API."""
    import uvicorn

    from .web import create_web

    try:
        web = create_web(memory)
    except SettingsError as error:
        raise click.UsageError(str(error)) from None
    uvicorn.run(web, host=host, port=port, log_level="warning")


@main.command()
@click.option("--until-idle", is_flag=True, help="End when no job is due.")
@click.pass_obj
def worker(memory: MemoryExtraction, until_idle: bool) -> None:
    """Run a worker that extracts memories, until it is stopped."""
    memory.app.run_worker(until_idle=until_idle, **memory.worker_options())


@main.command()
@click.pass_obj
def batch(memory: MemoryExtraction) -> None:
    """Process one batch and end, for use with cron."""

    async def once() -> int:
        try:
            return await run_batch(memory)
        finally:
            await memory.close()

    click.echo(f"{asyncio.run(once())} jobs")


if __name__ == "__main__":
    main()

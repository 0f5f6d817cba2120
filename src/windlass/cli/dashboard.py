"""`windlass dashboard jobs:app`: the HTTP API and its page."""

from __future__ import annotations

import ipaddress

import click

from ..errors import MissingExtra
from ..logs import one_line
from .apps import find_app
from .status import target, url

GRACE_SECONDS = 2  # for open requests at the end; a stream of events would never end by itself


@click.command()
@target
@url
@click.option("--host", default="127.0.0.1", show_default=True, help="the address to listen on")
@click.option("--port", default=8023, show_default=True, type=click.IntRange(0, 65535))
@click.option(
    "--token", envvar="WINDLASS_TOKEN", help="clients must send it; $WINDLASS_TOKEN hides it from the process list"
)
@click.option("--read-only", is_flag=True, help="refuse all changes")
@click.option("--allow-host", "allowed_hosts", multiple=True, help="a host name of this server; repeatable")
def dashboard(
    target: str | None,
    url: str | None,
    host: str,
    port: int,
    token: str | None,
    read_only: bool,
    allowed_hosts: tuple[str, ...],
) -> None:
    """Serve the HTTP API and its page. Without a token, only this machine can use it."""
    try:
        import uvicorn

        from ..web import create_app
    except ImportError as error:
        raise MissingExtra("the dashboard needs Starlette and uvicorn: pip install 'windlass[web]'") from error
    if not token and not _is_loopback(host):
        raise click.UsageError(f"--host {host} is open to other machines: give a --token (or $WINDLASS_TOKEN)")
    app = find_app(target, url)
    web = create_app(app, token=token or None, read_only=read_only, allowed_hosts=allowed_hosts)
    click.echo(f"{one_line(app)} at http://{f'[{host}]' if ':' in host else host}:{port}/ (Ctrl-C ends it)")
    uvicorn.run(
        web, host=host, port=port, log_level="warning", access_log=False, server_header=False,
        timeout_graceful_shutdown=GRACE_SECONDS,
    )  # fmt: skip


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"

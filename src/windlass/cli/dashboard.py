"""`windlass dashboard jobs:app`: the HTTP API and its page."""

from __future__ import annotations

import ipaddress

import click

from ..errors import MissingExtra
from ..logs import one_line
from .apps import find_app
from .looking import target, url

GRACE_SECONDS = 2  # for those that are still being answered; who listens to events would never end


@click.command()
@target
@url
@click.option("--host", default="127.0.0.1", show_default=True, help="the address to listen on")
@click.option("--port", default=8023, show_default=True, type=click.IntRange(0, 65535))
@click.option(
    "--token", envvar="WINDLASS_TOKEN", help="asked of everybody; or $WINDLASS_TOKEN, which others cannot see"
)
@click.option("--read-only", is_flag=True, help="look, change nothing")
@click.option("--allow-host", "allowed_hosts", multiple=True, help="a name that the server is called by; repeatable")
def dashboard(
    target: str | None,
    url: str | None,
    host: str,
    port: int,
    token: str | None,
    read_only: bool,
    allowed_hosts: tuple[str, ...],
) -> None:
    """Serve the HTTP API and its page: on this machine only, unless there is a token."""
    try:
        import uvicorn

        from ..web import create_app
    except ImportError as error:
        raise MissingExtra("the dashboard needs Starlette and uvicorn: pip install 'windlass[web]'") from error
    if not token and not _is_loopback(host):
        raise click.UsageError(f"--host {host} is open to others: give a --token (or $WINDLASS_TOKEN)")
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

"""`create_app`: the endpoints, the page and the gate before them, as one ASGI app."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import partial
from http import HTTPStatus
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Send
from starlette.types import Scope as ASGIScope

from ..app import Windlass
from ..errors import InvalidInput, WindlassError
from ..logs import Log
from . import graph, jobs, system
from .access import Access, Scope, Tokens
from .endpoints import ENDPOINTS
from .events import Events
from .gate import Gate
from .pages import PAGES
from .problems import Problem
from .triggers import Trigger

log = Log("windlass.web")

ROOM_FOR_OPTIONS = 512 * 1024  # bytes of a body beside the payload: 10,000 blockers' ids

__all__ = ["create_app", "graph", "jobs", "system"]


def create_app(
    app: Windlass,
    *,
    token: str | None = None,
    tokens: Mapping[str, Access | Scope] | None = None,
    read_only: bool = False,
    allowed_hosts: Collection[str] = (),
    triggers: Mapping[str, Trigger] | None = None,
) -> Starlette:
    """The HTTP API and its page, to be served, or mounted in an app of one's own.

    `token` (or $WINDLASS_TOKEN) may do everything; `tokens` have scopes, and may be a tenant's. Without any, only this
    machine is answered. `allowed_hosts`: the names by which the server is called, where they have a dot in them.
    """
    if token is None and tokens is None:
        token = os.environ.get("WINDLASS_TOKEN") or None
    for name, trigger in (triggers or {}).items():
        if not isinstance(trigger, Trigger):
            raise InvalidInput(f"trigger {name!r} is a {type(trigger).__name__}, not a Trigger")
    if read_only and triggers:
        raise InvalidInput("triggers change things, and read_only=True says that nothing is changed")
    gate = Middleware(
        Gate,
        tokens=Tokens(token, tokens, read_only=read_only),
        hosts=allowed_hosts,
        most_bytes=app.max_payload + ROOM_FOR_OPTIONS,
    )
    routes = [Route(one.path, Answer(partial(one.answer, app)), methods=[one.method]) for one in ENDPOINTS]
    routes += [Route(path, Answer(partial(page, app)), methods=["GET"]) for path, page in PAGES.items()]
    handlers: dict[Any, Any] = {HTTPException: _as_problem, Exception: _broken, Problem: _told}
    web = Starlette(routes=routes, middleware=[gate], exception_handlers=handlers)
    web.state.events = Events(app)
    web.state.triggers = dict(triggers or {})
    return web


class Answer:
    """What a route leads to, as an ASGI app: with a plain function Starlette would look for handlers of errors here
    already, and once more around all routes."""

    def __init__(self, answer: Callable[[Request], Awaitable[Response]]) -> None:
        self.answer = answer

    async def __call__(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        try:
            response = await self.answer(Request(scope, receive, send))
        except WindlassError as error:
            raise Problem.of(error) from error
        await response(scope, receive, send)


async def _told(request: Request, problem: Problem) -> Response:
    if problem.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        log.error("%s %s: %s", request.method, request.url.path, problem.detail)
    return problem.response()


async def _as_problem(request: Request, error: HTTPException) -> Response:
    """What the router says: no such path, or not with this method."""
    detail = f"there is no {request.url.path}" if error.status_code == HTTPStatus.NOT_FOUND else error.detail
    return Problem(HTTPStatus(error.status_code), detail, headers=error.headers).response()


async def _broken(request: Request, error: Exception) -> Response:
    detail = "this should not have happened; the server's log says more"
    return Problem(HTTPStatus.INTERNAL_SERVER_ERROR, detail).response()

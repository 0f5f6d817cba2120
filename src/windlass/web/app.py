"""`create_app`: the gate, the endpoints and the page, as one ASGI app."""

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

ROOM_FOR_OPTIONS = 512 * 1024  # bytes of a body beside the payload, such as the ids of 10,000 blockers

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
    """Make the HTTP API and its page as an ASGI app. Serve it, or mount it in your own app.

    `token` (or $WINDLASS_TOKEN) allows everything. `tokens` have scopes, and may belong to a tenant. Without a token
    the server answers only this machine. `allowed_hosts` are the names of this server that have a dot in them.
    """
    if token is None and tokens is None:
        token = os.environ.get("WINDLASS_TOKEN") or None
    for name, trigger in (triggers or {}).items():
        if not isinstance(trigger, Trigger):
            raise InvalidInput(f"trigger {name!r} is a {type(trigger).__name__}; give a Trigger")
    if read_only and triggers:
        raise InvalidInput("triggers enqueue jobs, and read_only=True forbids that; leave one of them out")
    gate = Middleware(
        Gate,
        tokens=Tokens(token, tokens, read_only=read_only),
        hosts=allowed_hosts,
        most_bytes=app.max_payload + ROOM_FOR_OPTIONS,
    )
    routes = [Route(one.path, RouteHandler(partial(one.answer, app)), methods=[one.method]) for one in ENDPOINTS]
    routes += [Route(path, RouteHandler(partial(page, app)), methods=["GET"]) for path, page in PAGES.items()]
    handlers: dict[Any, Any] = {HTTPException: _answer_router_error, Exception: _answer_crash, Problem: _answer_problem}
    web = Starlette(routes=routes, middleware=[gate], exception_handlers=handlers)
    web.state.events = Events(app)
    web.state.triggers = dict(triggers or {})
    return web


class RouteHandler:
    """The ASGI app of one route. A plain function would be slower: Starlette would look up the exception handlers here,
    and again around all routes."""

    def __init__(self, answer: Callable[[Request], Awaitable[Response]]) -> None:
        self.answer = answer

    async def __call__(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        try:
            response = await self.answer(Request(scope, receive, send))
        except WindlassError as error:
            raise Problem.of(error) from error
        await response(scope, receive, send)


async def _answer_problem(request: Request, problem: Problem) -> Response:
    if problem.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        log.error("%s %s: %s", request.method, request.url.path, problem.detail)
    return problem.response()


async def _answer_router_error(request: Request, error: HTTPException) -> Response:
    """Answer an error of the router: an unknown path, or a method that the path does not have."""
    detail = f"there is no {request.url.path}" if error.status_code == HTTPStatus.NOT_FOUND else error.detail
    return Problem(HTTPStatus(error.status_code), detail, headers=error.headers).response()


async def _answer_crash(request: Request, error: Exception) -> Response:
    detail = "an unexpected error in the server; see its log"
    return Problem(HTTPStatus.INTERNAL_SERVER_ERROR, detail).response()

"""The HTTP API: messages and plans, and Windlass's own API for jobs, triggers and the rest."""

from __future__ import annotations

import hmac
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Annotated, Any, TypeVar
from uuid import UUID

import msgspec
from msgspec import Meta
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route

from windlass import InvalidInput, JobCancelled, JobFailed, JobNotFound, WindlassError
from windlass.web import Access, Trigger, create_app

from .dispatch import TENANT
from .platform import Platform
from .settings import SettingsError

MOST_BYTES = 100_000
STATUS = {JobNotFound: HTTPStatus.NOT_FOUND, InvalidInput: HTTPStatus.UNPROCESSABLE_ENTITY}

T = TypeVar("T")
Text = Annotated[str, Meta(min_length=1, max_length=20_000)]
Key = Annotated[str, Meta(min_length=1, max_length=200)]


class Goal(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    goal: Text
    subtasks: Annotated[int, Meta(ge=1, le=20)] | None = None
    dedupe_key: Key | None = None


class Message(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    session: Key
    text: Text
    channel: Key = "web"
    dedupe_key: Key | None = None


class Patience(msgspec.Struct, forbid_unknown_fields=True):
    wait: Annotated[float, Meta(ge=0, le=60)] = 0


class Endpoints:
    """The platform's own endpoints. All of them need the token."""

    def __init__(self, platform: Platform) -> None:
        self.platform, self.app = platform, platform.app

    async def take_message(self, request: Request) -> Response:
        message = msgspec.to_builtins(await read(request, Message))
        key = message.pop("dedupe_key")
        job = await run_in_threadpool(self.platform.jobs.enqueue, "agent-turn", message, key)
        return JSONResponse({"id": str(job.id), "created": job.created}, HTTPStatus.ACCEPTED)

    async def orchestrate(self, request: Request) -> Response:
        given = await read(request, Goal)
        plan = {"goal": given.goal, "subtasks": given.subtasks or self.platform.settings.subtasks}
        job = await run_in_threadpool(self.platform.jobs.enqueue, "orchestrator-plan", plan, given.dedupe_key)
        where = {"Location": f"/v1/orchestrate/{job.id}"}
        return JSONResponse({"id": str(job.id), "created": job.created}, HTTPStatus.ACCEPTED, headers=where)

    async def get_answer(self, request: Request) -> Response:
        """Wait for the answer, at most `?wait=` seconds. 200 if the plan has ended, 202 if it still runs."""
        id: UUID = request.path_params["id"]
        patience = convert(dict(request.query_params), Patience)
        if (await self.app.arequire(id)).type != "orchestrator-plan":
            raise JobNotFound(f"{id} is not a plan; give the id that POST /v1/orchestrate returned")
        try:
            answer = await self.app.aresult(id, timeout=patience.wait)
        except TimeoutError:
            return JSONResponse({"id": str(id), "state": "running"}, HTTPStatus.ACCEPTED)
        except (JobFailed, JobCancelled) as error:
            return JSONResponse({"id": str(id), "state": "failed", "error": str(error)})
        return JSONResponse({"id": str(id), "state": "completed", "answer": answer})


def create_web(platform: Platform) -> Starlette:
    """Make the ASGI app. Without a token it does not start."""
    settings, own = platform.settings, Endpoints(platform)
    if settings.token is None:
        raise SettingsError("WINDLASS_TOKEN is missing: set the token that clients of the platform must send")
    triggers = {"agent": Trigger("trigger-fire", settings.webhook_secret)} if settings.webhook_secret else {}
    tokens = {settings.remote_token: Access("operate", tenant=TENANT)} if settings.remote_token else {}
    queue = create_app(platform.app, token=settings.token, tokens=tokens, triggers=triggers)

    def route(path: str, method: str, answer: Callable[[Request], Awaitable[Response]]) -> Route:
        return Route(path, guarded(settings.token or "", answer), methods=[method])

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        await platform.app.aclose()

    routes = [
        route("/v1/messages", "POST", own.take_message),
        route("/v1/orchestrate", "POST", own.orchestrate),
        route("/v1/orchestrate/{id:uuid}", "GET", own.get_answer),
        Mount("/", queue),
    ]
    handlers: Any = {HTTPException: refuse, WindlassError: refuse_windlass_error}
    return Starlette(routes=routes, lifespan=lifespan, exception_handlers=handlers)


def guarded(token: str, answer: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
    expected = f"Bearer {token}".encode()

    async def endpoint(request: Request) -> Response:
        if not hmac.compare_digest(request.headers.get("authorization", "").encode(), expected):
            detail = "the token is missing or wrong; send the header Authorization: Bearer …"
            raise HTTPException(HTTPStatus.UNAUTHORIZED, detail, {"WWW-Authenticate": "Bearer"})
        return await answer(request)

    return endpoint


async def read(request: Request, kind: type[T]) -> T:
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > MOST_BYTES:
            detail = f"the body is too large; send at most {MOST_BYTES} bytes"
            raise HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, detail)
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        raise HTTPException(HTTPStatus.UNPROCESSABLE_ENTITY, str(error)) from None
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise HTTPException(HTTPStatus.BAD_REQUEST, f"the body is not JSON: {error}") from None


def convert(given: dict[str, str], kind: type[T]) -> T:
    try:
        return msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as error:
        raise HTTPException(HTTPStatus.UNPROCESSABLE_ENTITY, str(error)) from None


async def refuse(request: Request, error: HTTPException) -> Response:
    status = HTTPStatus(error.status_code)
    problem = {"type": "about:blank", "title": status.phrase, "status": status, "detail": error.detail}
    return JSONResponse(problem, status, headers=error.headers, media_type="application/problem+json")


async def refuse_windlass_error(request: Request, error: WindlassError) -> Response:
    """Answer an error of Windlass: the caller's mistake, or a database that does not answer."""
    status = STATUS.get(type(error), HTTPStatus.SERVICE_UNAVAILABLE)
    return await refuse(request, HTTPException(status, str(error)))

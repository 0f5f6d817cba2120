"""An endpoint is a function: its parameters say what is asked, its answer's type what is told, its docstring why.

    @endpoint("GET", "/v1/jobs/{id}", "read")
    async def get_job(asked: Asked, id: UUID) -> JobDetails:

`query` and `body` are msgspec structs; any other parameter is part of the path. What a request has of a query or a body
that the function does not ask for is refused.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, TypeVar, get_type_hints
from uuid import UUID

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from .. import codec
from ..app import Windlass
from ..errors import InvalidInput, JobNotFound
from ..job import Job
from .access import Access, Scope
from .problems import Problem

F = TypeVar("F", bound=Callable[..., Awaitable[Any]])

ENDPOINTS: list[Endpoint] = []
BYTES = msgspec.json.Encoder()


class Nothing(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Where there is nothing to ask for."""


@dataclass(slots=True)
class Asked:
    """One request: who asks, of which app. `status` is what the answer will have."""

    app: Windlass
    access: Access
    request: Request
    status: int = 200

    async def job(self, id: UUID) -> Job:
        """The job. Another tenant's is told like one that is not there."""
        job = await self.app.arequire(id)
        if self.access.tenant not in (None, job.tenant):
            raise JobNotFound(f"there is no job {id}: it never was, was deleted, or is no longer kept")
        return job

    async def own(self, id: UUID) -> None:
        """Before something is done to it: whether it is theirs."""
        if self.access.tenant is not None:
            await self.job(id)

    async def own_all(self, ids: Sequence[UUID]) -> None:
        """The same of many. What is another's is told like what is not there."""
        found = await self.app.arun_operation(lambda: self.app.store.get(ids)) if self.access.tenant and ids else []
        missing = set(ids) - {job.id for job in found if job.tenant == self.access.tenant}
        if self.access.tenant and missing:
            raise JobNotFound(f"there is no job {min(missing)}: it never was, was deleted, or is no longer kept")


@dataclass(frozen=True, slots=True)
class Endpoint:
    method: str
    path: str
    scope: Scope | None  # None: whoever brings a signature
    function: Callable[..., Awaitable[Any]]
    types: dict[str, Any]  # of its parameters, and of what it returns
    across_tenants: bool
    status: int
    accepts: Any  # what the body is, where the function reads it itself

    @property
    def summary(self) -> str:
        return inspect.getdoc(self.function) or ""

    async def answer(self, app: Windlass, request: Request) -> Response:
        access: Access = request.state.access
        self._check(access)
        asked = Asked(app, access, request, self.status)
        value = await self.function(asked, **(await self._arguments(request)))
        if isinstance(value, Response):
            return value
        body = b"" if asked.status == HTTPStatus.NO_CONTENT else BYTES.encode(value)
        return Response(body, status_code=asked.status, media_type="application/json" if body else None)

    def _check(self, access: Access | None) -> None:
        if self.scope is None:
            return
        if access is None or not access.allows(self.scope):
            raise Problem(HTTPStatus.FORBIDDEN, f"this needs the scope {self.scope!r}")
        if self.across_tenants and access.tenant is not None:
            raise Problem(HTTPStatus.FORBIDDEN, "this shows all tenants, and the token is one tenant's")

    async def _arguments(self, request: Request) -> dict[str, Any]:
        arguments: dict[str, Any] = {}
        if "query" not in self.types:
            _read_query(request, Nothing)
        for name, kind in self.types.items():
            if name in ("asked", "return"):
                continue
            if name == "query":
                arguments[name] = _read_query(request, kind)
            elif name == "body":
                arguments[name] = await _read_body(request, kind)
            else:
                arguments[name] = _read_part(request.path_params[name], kind)
        if self._takes_no_body:
            await _read_body(request, Nothing)
        return arguments

    @property
    def _takes_no_body(self) -> bool:
        """What is sent to a change that takes nothing was meant for something: it is refused, not passed over."""
        return self.method not in ("GET", "HEAD") and "body" not in self.types and self.accepts is None


def endpoint(
    method: str, path: str, scope: Scope | None, *, across_tenants: bool = False, status: int = 200, accepts: Any = None
) -> Callable[[F], F]:
    def register(function: F) -> F:
        types = get_type_hints(function, include_extras=True)
        ENDPOINTS.append(Endpoint(method, path, scope, function, types, across_tenants, status, accepts))
        return function

    return register


def read_object(given: bytes, what: str) -> dict[str, Any]:
    """A handler's arguments by name."""
    arguments = read_json(given)
    if not isinstance(arguments, dict):
        raise InvalidInput(f"{what} is an object of arguments by name")
    return arguments


def read_json(given: bytes) -> Any:
    try:
        return codec.read_text(given.decode())
    except UnicodeDecodeError as error:
        raise InvalidInput(f"this is not UTF-8: {error}") from error


def _read_part(text: str, kind: Any) -> Any:
    if kind is not UUID:
        return text
    try:
        return UUID(text)
    except ValueError:
        raise Problem(HTTPStatus.NOT_FOUND, f"{text!r} is not an id: ids are UUIDs", kind="job-not-found") from None


def _read_query(request: Request, kind: type) -> Any:
    given: dict[str, str] = {}
    for name, value in request.query_params.multi_items() if request.scope["query_string"] else ():
        if name in given:
            raise Problem(HTTPStatus.BAD_REQUEST, f"{name} is given twice")
        given[name] = value
    try:
        return msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as error:
        raise Problem(HTTPStatus.UNPROCESSABLE_ENTITY, f"query: {error}", kind="invalid-input") from error


async def _read_body(request: Request, kind: Any) -> Any:
    body = await request.body()
    if body:
        media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if media != "application/json":
            raise Problem(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "the body is to be application/json")
    try:
        return msgspec.json.decode(body or b"{}", type=kind)
    except msgspec.ValidationError as error:
        raise Problem(HTTPStatus.UNPROCESSABLE_ENTITY, f"body: {error}", kind="invalid-input") from error
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise Problem(HTTPStatus.BAD_REQUEST, f"the body is not JSON: {error}") from error

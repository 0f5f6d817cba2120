"""Endpoints as typed functions. The parameters define the request, the return type defines the answer, and the
docstring is the documentation.

    @endpoint("GET", "/v1/jobs/{id}", "read")
    async def get_job(context: Context, id: UUID) -> JobDetails:

`query` and `body` are msgspec structs. Any other parameter is part of the path. A query or a body that the function
does not declare is refused.
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
from ..errors import InvalidInput
from ..job import Job, no_job
from .access import Access, Scope
from .problems import Problem

F = TypeVar("F", bound=Callable[..., Awaitable[Any]])

ENDPOINTS: list[Endpoint] = []
BYTES = msgspec.json.Encoder()


class Nothing(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The type of a query or a body that must be empty."""


@dataclass(slots=True)
class Context:
    """One request with its app and the rights of its token. `status` is the status of the answer."""

    app: Windlass
    access: Access
    request: Request
    status: int = 200

    async def job(self, id: UUID) -> Job:
        """Return the job. Another tenant's job gives the same error as a missing one, so that its existence stays
        hidden."""
        job = await self.app.arequire(id)
        if self.access.tenant not in (None, job.tenant):
            raise no_job(id)
        return job

    async def check_job(self, id: UUID) -> None:
        """Check that the token's tenant may act on this job."""
        if self.access.tenant is not None:
            await self.job(id)

    async def check_jobs(self, ids: Sequence[UUID]) -> None:
        """Check that the token's tenant may use all these jobs."""
        found = await self.app.arun_operation(lambda: self.app.store.get(ids)) if self.access.tenant and ids else []
        missing = set(ids) - {job.id for job in found if job.tenant == self.access.tenant}
        if self.access.tenant and missing:
            raise no_job(min(missing))


@dataclass(frozen=True, slots=True)
class Endpoint:
    method: str
    path: str
    scope: Scope | None  # None: the request has a signature instead of a token
    function: Callable[..., Awaitable[Any]]
    types: dict[str, Any]  # the types of its parameters, and of its return value
    across_tenants: bool
    status: int
    accepts: Any  # the type of a body that the function reads itself

    @property
    def summary(self) -> str:
        return inspect.getdoc(self.function) or ""

    async def answer(self, app: Windlass, request: Request) -> Response:
        access: Access = request.state.access
        self._check(access)
        context = Context(app, access, request, self.status)
        value = await self.function(context, **(await self._arguments(request)))
        if isinstance(value, Response):
            return value
        body = b"" if context.status == HTTPStatus.NO_CONTENT else BYTES.encode(value)
        return Response(body, status_code=context.status, media_type="application/json" if body else None)

    def _check(self, access: Access | None) -> None:
        if self.scope is None:
            return
        if access is None or not access.allows(self.scope):
            raise Problem(HTTPStatus.FORBIDDEN, f"this needs the scope {self.scope!r}; use a token that has it")
        if self.across_tenants and access.tenant is not None:
            detail = "this concerns all tenants, and the token belongs to one; use a token without a tenant"
            raise Problem(HTTPStatus.FORBIDDEN, detail)

    async def _arguments(self, request: Request) -> dict[str, Any]:
        arguments: dict[str, Any] = {}
        if "query" not in self.types:
            _read_query(request, Nothing)
        for name, kind in self.types.items():
            if name in ("context", "return"):
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
        """Whether a body is refused. If it were ignored, the caller's mistake would stay hidden."""
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
    """Read a handler's arguments by name."""
    arguments = read_json(given)
    if not isinstance(arguments, dict):
        raise InvalidInput(f"{what} is an object of arguments by name, not {type(arguments).__name__}")
    return arguments


def read_json(given: bytes) -> Any:
    try:
        return codec.read_text(given.decode())
    except UnicodeDecodeError as error:
        raise InvalidInput(f"the text is not UTF-8: {error}") from error


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
            raise Problem(HTTPStatus.BAD_REQUEST, f"the parameter {name} is given twice; give it once")
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
            detail = f"the body's type is {media or 'missing'}; send the header Content-Type: application/json"
            raise Problem(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, detail)
    try:
        return msgspec.json.decode(body or b"{}", type=kind)
    except msgspec.ValidationError as error:
        raise Problem(HTTPStatus.UNPROCESSABLE_ENTITY, f"body: {error}", kind="invalid-input") from error
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise Problem(HTTPStatus.BAD_REQUEST, f"the body is not JSON: {error}") from error

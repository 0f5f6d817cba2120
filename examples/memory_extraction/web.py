"""The HTTP API: one endpoint for completions, which answers at once, and one to search memories. It needs starlette.

The token decides the tenant. No other part of a request can name a tenant.
"""

from __future__ import annotations

import asyncio
import hmac
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict
from http import HTTPStatus
from typing import Annotated, Any
from uuid import uuid4

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from windlass import Fail, InvalidInput, Retry, StoreUnavailable

from .extraction import MemoryExtraction
from .extractors import Transaction
from .settings import SettingsError

LARGEST_BODY = 256 * 1024
LONGEST_QUERY = 2000
MOST_HITS = 100

Complete = Callable[[str], Awaitable[str]]


class CompletionRequest(msgspec.Struct):
    """A request as OpenAI's clients send it. Other fields are ignored."""

    prompt: Annotated[str, msgspec.Meta(min_length=1)]
    user: Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
    model: Annotated[str, msgspec.Meta(max_length=200)] = "echo"


async def echo(prompt: str) -> str:
    """A stand-in for the real model."""
    return f"You said {len(prompt.split())} words."


def create_web(memory: MemoryExtraction, complete: Complete = echo) -> Starlette:
    tenants = {token.encode(): tenant for token, tenant in memory.settings.tenants_by_token().items()}
    if not tenants:
        raise SettingsError("MEMORY_TENANTS is empty, so all requests would be refused; give name=token,name=token")

    def tenant_of(request: Request) -> str:
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        for token, tenant in tenants.items():
            if scheme.lower() == "bearer" and hmac.compare_digest(token, given.strip().encode()):
                return tenant
        detail = "the token is missing or not known; send the token of a tenant: Authorization: Bearer …"
        raise HTTPException(401, detail, {"WWW-Authenticate": "Bearer"})

    async def completions(request: Request) -> Response:
        tenant, request_id = tenant_of(request), request_id_of(request)
        asked = read_completion(await read_body(request))
        text = await complete(asked.prompt)
        job = await memory.enqueue(tenant, asked.user, Transaction(asked.prompt, text), request_id)
        answer = {
            "id": f"cmpl-{request_id}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": asked.model,
            "choices": [{"index": 0, "text": text, "logprobs": None, "finish_reason": "stop"}],
        }
        return JSONResponse(answer, headers={"X-Request-Id": request_id, "X-Extraction-Job": str(job.id)})

    async def search(request: Request) -> Response:
        tenant = tenant_of(request)
        text, user = text_parameter(request, "q"), text_parameter(request, "user")
        if text is None:
            raise HTTPException(400, "q is missing; give the text to search for")
        hits = await memory.search(tenant, text, user=user, limit=limit_parameter(request))
        return JSONResponse({"memories": [asdict(hit) for hit in hits]})

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        await asyncio.to_thread(memory.prepare)
        yield
        await memory.close()

    return Starlette(
        routes=[
            Route("/v1/completions", completions, methods=["POST"]),
            Route("/v1/memories/search", search, methods=["GET"]),
        ],
        exception_handlers=HANDLERS,
        lifespan=lifespan,
    )


def request_id_of(request: Request) -> str:
    """The id that the caller gave, so that a request that is sent again is recognised. Otherwise a new id."""
    given = request.headers.get("x-request-id")
    if given is None:
        return str(uuid4())
    if not re.fullmatch(r"[!-~]{1,200}", given):
        raise HTTPException(400, "X-Request-Id has 1 to 200 visible ASCII characters")
    return given


async def read_body(request: Request) -> bytes:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > LARGEST_BODY:
            raise HTTPException(413, f"the body is too large; send at most {LARGEST_BODY} bytes")
    return bytes(body)


def read_completion(body: bytes) -> CompletionRequest:
    try:
        return msgspec.json.decode(body, type=CompletionRequest)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise HTTPException(400, f"the body is no completion request: {error}") from None


def text_parameter(request: Request, name: str) -> str | None:
    text = request.query_params.get(name)
    if text is not None and (not text.strip() or len(text) > LONGEST_QUERY or "\0" in text):
        raise HTTPException(400, f"{name} is text of 1 to {LONGEST_QUERY} characters, without NUL")
    return text


def limit_parameter(request: Request) -> int:
    text = request.query_params.get("limit", "10")
    if not re.fullmatch("[0-9]{1,3}", text) or not 1 <= int(text) <= MOST_HITS:
        raise HTTPException(400, f"limit is a number from 1 to {MOST_HITS}")
    return int(text)


def problem(status: int, detail: str, headers: Mapping[str, str] | None = None) -> Response:
    """An answer with a problem document (RFC 9457)."""
    content = {"status": status, "title": HTTPStatus(status).phrase, "detail": detail}
    return JSONResponse(content, status, headers, media_type="application/problem+json")


HANDLERS: dict[Any, Callable[[Request, Any], Response]] = {
    HTTPException: lambda request, error: problem(error.status_code, error.detail, error.headers),
    InvalidInput: lambda request, error: problem(400, str(error)),
    StoreUnavailable: lambda request, error: problem(503, "the database cannot be reached; try again later"),
    Retry: lambda request, error: problem(503, str(error)),
    Fail: lambda request, error: problem(502, str(error)),
    Exception: lambda request, error: problem(500, "an unexpected error in the server; see its log"),
}

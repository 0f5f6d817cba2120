"""The pages for a browser: an overview, and the documentation of the API. All names and errors are escaped."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime
from functools import cache
from html import escape
from importlib.resources import files
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from .. import __version__, insight
from ..app import Windlass
from ..lifecycle import STATES
from ..stores.urls import without_password
from .access import Access
from .endpoints import ENDPOINTS
from .openapi import make_document

FAILURES = 10
NUMBERS = frozenset((*STATES, "running", "concurrency"))


async def overview(app: Windlass, request: Request) -> Response:
    access: Access = request.state.access
    tenant = access.tenant
    failed = await app.alist(state="failed", tenant=tenant, limit=FAILURES)
    failures = [[str(job.id), job.type, job.queue, _when(job.finished_at), str(job.error)] for job in failed]
    parts: list[str] = []
    if tenant is None:
        counts, paused = await app.acounts(), await app.apaused()
        parts.append(_figures(counts))
        queues = [[*one.values()] for one in insight.queue_facts(counts, paused)]
        parts.append(_table("Queues", ["queue", "paused", *STATES], queues, "There are no queues yet."))
        workers = [
            [one.name, ", ".join(one.queues or ["all"]), one.running, one.concurrency, _when(one.heard_at)]
            for one in await app.aworkers()
        ]
        names = ["worker", "queues", "running", "concurrency", "last heard of"]
        parts.append(_table("Workers", names, workers, "No worker is alive."))
        schedules = [
            [one.name, one.cron, one.timezone, _when(one.next_runs[0] if one.next_runs else None)]
            for one in await app.aschedules()
        ]
        parts.append(_table("Schedules", ["schedule", "cron", "timezone", "next run"], schedules, "There are none."))
    names = ["job", "type", "queue", "failed at", "error"]
    parts.append(_table("Newest failures", names, failures, "Nothing has failed."))
    return _page(request, "Windlass", without_password(app.url), "".join(parts))


async def documentation(app: Windlass, request: Request) -> Response:
    """The documentation for people. Programs read openapi.json."""
    rows = [
        [
            one.method,
            one.path.replace(":path}", "}"),
            one.scope or "signature",
            " ".join(one.summary.replace("`", "").split()),
        ]
        for one in sorted(ENDPOINTS, key=lambda one: (one.path, one.method))
    ]
    text = (
        "<p>Answers are JSON, problems <code>application/problem+json</code>. A token goes into the header "
        "<code>Authorization: Bearer …</code>. The <a href='openapi.json'>OpenAPI document</a> has every field.</p>"
    )
    table = _table("Endpoints", ["method", "path", "scope", "what it does"], rows, "")
    schemas = _document()["components"]["schemas"]
    shapes = "".join(_shape(name, schema) for name, schema in sorted(schemas.items()) if "properties" in schema)
    return _page(request, "Windlass: HTTP API", f"version {__version__}", text + table + shapes)


async def openapi(app: Windlass, request: Request) -> Response:
    document = _document() | {"servers": [{"url": request.scope.get("root_path") or "/"}]}
    return Response(msgspec.json.encode(document), media_type="application/json")


async def style(app: Windlass, request: Request) -> Response:
    return Response(_style(), media_type="text/css")


PAGES: dict[str, Callable[[Windlass, Request], Awaitable[Response]]] = {
    "/": overview,
    "/docs": documentation,
    "/openapi.json": openapi,
    "/style.css": style,
}


@cache
def _document() -> dict[str, Any]:
    return make_document()


@cache
def _style() -> bytes:
    return (files(__package__) / "style.css").read_bytes()


def _page(request: Request, title: str, subtitle: str, body: str) -> HTMLResponse:
    root = escape(str(request.scope.get("root_path", "")), quote=True)
    return HTMLResponse(
        f"<!doctype html><html lang='en'><head><meta charset='utf-8'><title>{escape(title)}</title>"
        f"<meta name='viewport' content='width=device-width'><link rel='stylesheet' href='{root}/style.css'></head>"
        f"<body><h1>{escape(title)} <small>{_text(subtitle)}</small></h1>"
        f"<nav><a href='{root}/'>Overview</a><a href='{root}/docs'>API</a></nav>{body}</body></html>"
    )


def _figures(counts: Any) -> str:
    boxes = "".join(f"<div class='{state}'><dt>{state}</dt><dd>{counts[state]:,}</dd></div>" for state in STATES)
    return f"<dl>{boxes}</dl>"


def _table(title: str, names: Sequence[str], rows: Iterable[Sequence[object]], nothing: str) -> str:
    kinds = ["number" if name in NUMBERS else "" for name in names]
    head = "".join(f"<th class='{kind}'>{_text(name)}</th>" for kind, name in zip(kinds, names, strict=True))
    lines = [
        "".join(f"<td class='{kind}'>{_text(cell)}</td>" for kind, cell in zip(kinds, row, strict=True)) for row in rows
    ]
    if not lines:
        return f"<h2>{_text(title)}</h2><p class='quiet'>{_text(nothing)}</p>"
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return f"<h2>{_text(title)}</h2><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _shape(name: str, schema: dict[str, Any]) -> str:
    required = schema.get("required", ())
    rows = [
        [field, _kind(kind), "yes" if field in required else "", kind.get("description", "")]
        for field, kind in schema["properties"].items()
    ]
    return _table(name, ["field", "type", "required", ""], rows, "")


def _kind(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "anyOf" in schema:
        return " or ".join(_kind(one) for one in schema["anyOf"])
    if schema.get("enum"):
        return ", ".join(str(one) for one in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {_kind(schema.get('items', {}))}"
    return str(schema.get("format") or schema.get("type") or "any JSON")


def _when(moment: datetime | None) -> str:
    return "" if moment is None else moment.isoformat(" ", "seconds")


def _text(cell: object) -> str:
    if cell is None or cell is False:
        return ""
    return escape("yes" if cell is True else f"{cell:,}" if isinstance(cell, int) else str(cell), quote=True)

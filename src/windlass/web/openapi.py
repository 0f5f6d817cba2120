"""The OpenAPI document, made from the parameters, the answers and the docstrings of the endpoints."""

from __future__ import annotations

import re
from typing import Any, get_origin, is_typeddict
from uuid import UUID

import msgspec
from starlette.responses import Response

from .. import __version__
from .endpoints import ENDPOINTS, Endpoint
from .problems import ProblemDocument

SCHEMAS = "#/components/schemas/{name}"
SECURITY = {"token": {"type": "http", "scheme": "bearer"}, "password": {"type": "http", "scheme": "basic"}}


def make_document() -> dict[str, Any]:
    kinds = [kind for endpoint in ENDPOINTS for kind in _kinds(endpoint)] + [ProblemDocument]
    schemas, components = msgspec.json.schema_components(kinds, ref_template=SCHEMAS)
    schema_of = dict(zip(map(id, kinds), schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in ENDPOINTS:
        paths.setdefault(_plain(endpoint.path), {})[endpoint.method.lower()] = _operation(endpoint, schema_of)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Windlass",
            "version": __version__,
            "description": "A durable job queue in the database you already have.",
        },
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": SECURITY},
        "security": [{name: []} for name in SECURITY],
    }


def _plain(path: str) -> str:
    return re.sub(r":\w+}", "}", path)


def _is_stream(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Response)


def _kinds(endpoint: Endpoint) -> list[Any]:
    """The types that have schemas."""
    answer = endpoint.types["return"]
    kinds = [endpoint.types[name] for name in ("query", "body") if name in endpoint.types]
    kinds += [endpoint.accepts] if endpoint.accepts is not None else []
    return kinds + ([answer] if is_typeddict(answer) or get_origin(answer) else [])


def _operation(endpoint: Endpoint, schema_of: dict[int, Any]) -> dict[str, Any]:
    kinds, summary = endpoint.types, " ".join(endpoint.summary.split())
    operation: dict[str, Any] = {
        "operationId": endpoint.function.__name__,
        "summary": summary.partition(". ")[0].rstrip("."),
        "description": summary,
        "parameters": _parameters(endpoint),
        "responses": _responses(endpoint, schema_of),
    }
    body = kinds.get("body", endpoint.accepts)
    if body is not None:
        required = "body" in kinds and bool(msgspec.json.schema(body).get("$defs")) and _is_required(body)
        schema = schema_of[id(body)]
        operation["requestBody"] = {"required": required, "content": {"application/json": {"schema": schema}}}
    if endpoint.scope is None:
        operation["security"] = []
    else:
        operation["x-scope"] = endpoint.scope
    return operation


def _is_required(kind: type[msgspec.Struct]) -> bool:
    return any(field.required for field in msgspec.structs.fields(kind))


def _parameters(endpoint: Endpoint) -> list[dict[str, Any]]:
    parameters: list[dict[str, Any]] = []
    for name in re.findall(r"{(\w+)", endpoint.path):
        schema = {"type": "string", "format": "uuid"} if endpoint.types[name] is UUID else {"type": "string"}
        parameters.append({"name": name, "in": "path", "required": True, "schema": schema})
    query = endpoint.types.get("query")
    if query is not None:
        (definition,) = [one for one in msgspec.json.schema(query)["$defs"].values() if one["title"] == query.__name__]
        for name, schema in definition["properties"].items():
            parameters.append({"name": name, "in": "query", "required": False, "schema": _without_null(schema)})
    return parameters


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of an optional parameter. A query has no null: a parameter is left out instead."""
    kinds = [kind for kind in schema.get("anyOf", ()) if kind != {"type": "null"}]
    if len(kinds) == 1:
        schema = {name: value for name, value in schema.items() if name not in ("anyOf", "default")} | kinds[0]
    if isinstance(schema.get("enum"), list):
        schema = schema | {"enum": [value for value in schema["enum"] if value is not None], "type": "string"}
        schema.pop("default", None)
    return schema


def _responses(endpoint: Endpoint, schema_of: dict[int, Any]) -> dict[str, Any]:
    answer = endpoint.types["return"]
    done: dict[str, Any] = {"description": "Done."}
    if _is_stream(answer):
        done["content"] = {"text/event-stream": {"schema": {"type": "string"}}}
    elif id(answer) in schema_of:
        done["content"] = {"application/json": {"schema": schema_of[id(answer)]}}
    problem = {"application/problem+json": {"schema": schema_of[id(ProblemDocument)]}}
    statuses = {str(endpoint.status): done}
    if endpoint.function.__name__ == "enqueue_job":
        statuses["200"] = {**done, "description": "The job existed already."}
    return statuses | {"4XX": {"description": "The request was refused.", "content": problem}}

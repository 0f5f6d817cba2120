"""Errors as problem documents (RFC 9457), the answers to requests that failed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import TypedDict

import msgspec
from starlette.responses import Response

from ..errors import (
    Conflict,
    InvalidInput,
    JobFailed,
    JobNotFound,
    LeaseLost,
    ScheduleNotFound,
    SchemaMismatch,
    StoreUnavailable,
    UnknownTask,
    WindlassError,
)
from ..outcome import make_safe

STATUS: dict[type[WindlassError], HTTPStatus] = {
    InvalidInput: HTTPStatus.UNPROCESSABLE_ENTITY,
    UnknownTask: HTTPStatus.UNPROCESSABLE_ENTITY,
    JobNotFound: HTTPStatus.NOT_FOUND,
    ScheduleNotFound: HTTPStatus.NOT_FOUND,
    Conflict: HTTPStatus.CONFLICT,
    LeaseLost: HTTPStatus.CONFLICT,
    JobFailed: HTTPStatus.CONFLICT,
    StoreUnavailable: HTTPStatus.SERVICE_UNAVAILABLE,
    SchemaMismatch: HTTPStatus.SERVICE_UNAVAILABLE,
}


class ProblemDocument(TypedDict):
    """Why a request failed. `type` names the kind of problem, for programs; `detail` is for people."""

    type: str
    title: str
    status: int
    detail: str


class Problem(Exception):
    """An exception that becomes the answer to the request."""

    def __init__(
        self, status: HTTPStatus, detail: str, *, kind: str | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(detail)
        self.status, self.detail, self.headers = status, detail, headers
        self.kind = kind or status.phrase.lower().replace(" ", "-")

    @classmethod
    def of(cls, error: WindlassError) -> Problem:
        kinds = [kind for kind in type(error).__mro__ if kind in STATUS]
        if not kinds:
            return cls(HTTPStatus.INTERNAL_SERVER_ERROR, "an unexpected error in the server; see its log")
        name = re.sub(r"(?<=[a-z])(?=[A-Z])", "-", kinds[0].__name__).lower()
        return cls(STATUS[kinds[0]], str(error), kind=name)

    def response(self) -> Response:
        document: ProblemDocument = {
            "type": f"urn:windlass:{self.kind}",
            "title": self.status.phrase,
            "status": int(self.status),
            "detail": make_safe(self.detail),
        }
        return Response(
            msgspec.json.encode(document),
            status_code=self.status,
            headers=dict(self.headers or {}),
            media_type="application/problem+json",
        )

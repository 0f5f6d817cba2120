"""Signed webhooks: whoever knows a trigger's secret may start its task, each request once.

The signature is an HMAC-SHA256 over the time and the body. It holds for five minutes; what has been seen is a unique
key of the job that it made, so that any process on the same database refuses it the second time.
"""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from ..errors import Conflict, InvalidInput
from ..insight import JobFacts, job_facts
from ..task import Task
from ..unique import Unique
from .endpoints import Asked, endpoint, read_object
from .problems import Problem

SIGNATURE, TIMESTAMP = "X-Windlass-Signature", "X-Windlass-Timestamp"
VALID_SECONDS = 300
LEAST_SECRET = 16  # characters


@dataclass(frozen=True, slots=True)
class Trigger:
    """A task, or the name of one, that a signed request starts; the request's body has its arguments by name."""

    task: Task[..., Any] | str
    secret: str = field(repr=False)
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.secret, str) or len(self.secret) < LEAST_SECRET:
            raise InvalidInput(f"a trigger's secret has {LEAST_SECRET} characters or more")
        if "unique" in self.options:
            raise InvalidInput("a trigger's job has a unique key already: the request's signature")

    @property
    def type(self) -> str:
        return self.task if isinstance(self.task, str) else self.task.name


def sign(secret: str, body: bytes, at: float | None = None) -> dict[str, str]:
    """The headers that a sender adds to a request with this body."""
    timestamp = str(int(time.time() if at is None else at))
    return {TIMESTAMP: timestamp, SIGNATURE: _signature(secret, timestamp, body)}


def _signature(secret: str, timestamp: str, body: bytes) -> str:
    return "sha256=" + hmac.new(secret.encode(), timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()


@endpoint("POST", "/v1/triggers/{name}", None, status=202, accepts=dict[str, Any])
async def fire_trigger(asked: Asked, name: str) -> JobFacts:
    """Start a trigger's task with the body as its arguments. Signed: X-Windlass-Timestamp has the seconds since 1970,
    X-Windlass-Signature "sha256=" and the hexadecimal HMAC-SHA256, by the trigger's secret, over that number, a full
    stop and the body. Valid for five minutes, once."""
    given = await asked.request.body()
    trigger, signature = _check(asked, name, given)
    arguments = read_object(given or b"{}", "the body")
    once = Unique(f"trigger {name} {signature}", until=2 * VALID_SECONDS, on_conflict="raise")
    try:
        job = await asked.app.aenqueue(trigger.type, arguments, **{**trigger.options, "unique": once})
    except Conflict:
        raise Problem(HTTPStatus.CONFLICT, "this request was seen before", kind="replayed") from None
    return job_facts(job)


def _check(asked: Asked, name: str, body: bytes) -> tuple[Trigger, str]:
    """Alike for a name that is not known and a signature that is wrong."""
    triggers: Mapping[str, Trigger] = asked.request.app.state.triggers
    trigger, headers = triggers.get(name), asked.request.headers
    timestamp, signature = headers.get(TIMESTAMP, ""), headers.get(SIGNATURE, "")
    expected = _signature(trigger.secret if trigger else "no such trigger", timestamp, body)
    right = hmac.compare_digest(expected.encode(), signature.encode("utf-8", "surrogateescape"))
    if trigger is None or not right:
        raise Problem(HTTPStatus.UNAUTHORIZED, "no trigger of that name has made this signature")
    plain = timestamp.isascii() and timestamp.isdigit() and len(timestamp) <= 15
    if not plain or abs(time.time() - int(timestamp)) > VALID_SECONDS:
        raise Problem(HTTPStatus.UNAUTHORIZED, "the signature is more than five minutes old, or from the future")
    return trigger, signature

"""Signed webhooks: a sender that knows a trigger's secret can start its task. Each request works once.

The signature is an HMAC-SHA256 over the time and the body, valid for five minutes. It becomes the unique key of the
request's job. So every process on the same database refuses the same request a second time.
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
from .endpoints import Context, endpoint, read_object
from .problems import Problem

SIGNATURE, TIMESTAMP = "X-Windlass-Signature", "X-Windlass-Timestamp"
VALID_SECONDS = 300
LEAST_SECRET = 16  # characters of a secret


@dataclass(frozen=True, slots=True)
class Trigger:
    """A task, or its name, that a signed request starts. The body of the request has the arguments by name."""

    task: Task[..., Any] | str
    secret: str = field(repr=False)
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.secret, str) or len(self.secret) < LEAST_SECRET:
            raise InvalidInput(f"the secret of a trigger is too short; give at least {LEAST_SECRET} characters of text")
        if "unique" in self.options:
            raise InvalidInput("a trigger's job has the request's signature as its unique key; leave unique out")

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
async def fire_trigger(context: Context, name: str) -> JobFacts:
    """Start a trigger's task with the body as its arguments. The request is signed: X-Windlass-Timestamp has the
    seconds since 1970. X-Windlass-Signature has "sha256=" and the hexadecimal HMAC-SHA256, by the trigger's secret,
    over that number, a full stop and the body. A signature is valid for five minutes, and once."""
    given = await context.request.body()
    trigger, signature = _check(context, name, given)
    arguments = read_object(given or b"{}", "the body")
    once = Unique(f"trigger {name} {signature}", until=2 * VALID_SECONDS, on_conflict="raise")
    try:
        job = await context.app.aenqueue(trigger.type, arguments, **{**trigger.options, "unique": once})
    except Conflict:
        detail = "this request was received before; sign a new one"
        raise Problem(HTTPStatus.CONFLICT, detail, kind="replayed") from None
    return job_facts(job)


def _check(context: Context, name: str, body: bytes) -> tuple[Trigger, str]:
    """Check the signature. An unknown name and a wrong signature give the same error, so that it tells no names."""
    triggers: Mapping[str, Trigger] = context.request.app.state.triggers
    trigger, headers = triggers.get(name), context.request.headers
    timestamp, signature = headers.get(TIMESTAMP, ""), headers.get(SIGNATURE, "")
    expected = _signature(trigger.secret if trigger else "no such trigger", timestamp, body)
    right = hmac.compare_digest(expected.encode(), signature.encode("utf-8", "surrogateescape"))
    if trigger is None or not right:
        detail = "the name of the trigger or the signature is wrong; check the name, the secret and the body"
        raise Problem(HTTPStatus.UNAUTHORIZED, detail)
    plain = timestamp.isascii() and timestamp.isdigit() and len(timestamp) <= 15
    if not plain or abs(time.time() - int(timestamp)) > VALID_SECONDS:
        detail = "the signature is more than five minutes old, or from the future; check the sender's clock"
        raise Problem(HTTPStatus.UNAUTHORIZED, detail)
    return trigger, signature

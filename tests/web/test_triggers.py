"""Signed webhooks."""

from __future__ import annotations

import time

import pytest

from windlass import Windlass
from windlass.web import sign

from .conftest import SECRET, Client

BODY = b'{"name": "Ada"}'


async def test_a_signed_request_starts_the_task_once(app: Windlass, client: Client) -> None:
    http = client(None)
    headers = sign(SECRET, BODY)
    first = await http.post("/v1/triggers/nightly", content=BODY, headers=headers)
    assert (first.status_code, first.json()["type"], first.json()["queue"]) == (202, "greet", "night")
    replay = await http.post("/v1/triggers/nightly", content=BODY, headers=headers)
    assert (replay.status_code, replay.json()["type"]) == (409, "urn:windlass:replayed")
    await app.arun_worker(until_idle=True)
    again = await http.post("/v1/triggers/nightly", content=BODY, headers=headers)
    assert again.status_code == 409
    assert (await app.acounts())["completed"] == 1


@pytest.mark.parametrize(
    "headers",
    [
        {},
        sign("another secret of it", BODY),
        sign(SECRET, BODY + b" "),
        sign(SECRET, BODY) | {"X-Windlass-Timestamp": "1"},
        sign(SECRET, BODY, at=time.time() - 1000),
        sign(SECRET, BODY, at=time.time() + 10_000),
        {"X-Windlass-Timestamp": "soon", "X-Windlass-Signature": "sha256=0"},
        {"X-Windlass-Timestamp": "9" * 400, "X-Windlass-Signature": "sha256=0"},
    ],
)
async def test_an_unsigned_request_does_nothing(app: Windlass, client: Client, headers: dict[str, str]) -> None:
    assert (await client(None).post("/v1/triggers/deploy", content=BODY, headers=headers)).status_code == 401
    assert (await client(None).post("/v1/triggers/unknown", content=BODY, headers=headers)).status_code == 401
    assert (await app.acounts()).total == 0


@pytest.mark.parametrize("body", [b"[]", b'{"name": 5}', b"{", b"\xff", b'{"name": "a", "name": "b"}'])
async def test_what_the_task_does_not_take_is_refused(app: Windlass, client: Client, body: bytes) -> None:
    answer = await client(None).post("/v1/triggers/deploy", content=body, headers=sign(SECRET, body))
    assert answer.status_code == 422
    assert (await app.acounts()).total == 0

"""The API and those who do not mean well: a clear refusal, never an error of the server's own."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from examples.memory_extraction.web import LARGEST_BODY

from .conftest import TEA, TOKENS, opened, serving


@pytest.fixture
async def client(store_url: str) -> AsyncIterator[httpx.AsyncClient]:
    async with opened(store_url) as memory, serving(memory) as client:
        yield client


GOOD = {"prompt": TEA, "user": "ada"}
POST, SEARCH = "/v1/completions", "/v1/memories/search"

# What is sent, the status that it deserves, and what the refusal says.
WRONG: list[tuple[str, str, dict[str, Any], int, str]] = [
    ("POST", POST, {"json": GOOD, "headers": {"Authorization": ""}}, 401, "token"),
    ("POST", POST, {"json": GOOD, "headers": {"Authorization": "Bearer token-of-nobody"}}, 401, "token"),
    ("POST", POST, {"json": GOOD, "headers": {"Authorization": f"Basic {TOKENS['acme']}"}}, 401, "token"),
    ("POST", POST, {"json": GOOD, "headers": {"Authorization": "Bearer tökén".encode()}}, 401, "token"),
    ("GET", SEARCH, {"params": {"q": "tea"}, "headers": {"Authorization": "Bearer"}}, 401, "token"),
    ("POST", POST, {"content": b""}, 400, "no completion request"),
    ("POST", POST, {"content": b"{"}, 400, "no completion request"),
    ("POST", POST, {"content": b"\xff\xfe"}, 400, "no completion request"),
    ("POST", POST, {"content": b'{"prompt": "\xff", "user": "ada"}'}, 400, "no completion request"),
    ("POST", POST, {"content": b'{"prompt": "\\ud800", "user": "ada"}'}, 400, "no completion request"),
    ("POST", POST, {"content": b"[" * 100_000}, 400, "no completion request"),
    ("POST", POST, {"content": b'{"x":' * 20_000}, 400, "no completion request"),
    ("POST", POST, {"json": []}, 400, "object"),
    ("POST", POST, {"json": {"user": "ada"}}, 400, "prompt"),
    ("POST", POST, {"json": {"prompt": TEA}}, 400, "user"),
    ("POST", POST, {"json": GOOD | {"prompt": ["a", "b"]}}, 400, "prompt"),
    ("POST", POST, {"json": GOOD | {"prompt": ""}}, 400, "prompt"),
    ("POST", POST, {"json": GOOD | {"user": "u" * 201}}, 400, "user"),
    ("POST", POST, {"json": GOOD | {"prompt": "nul \0"}}, 400, "NUL"),
    ("POST", POST, {"json": GOOD | {"user": "nul \0"}}, 400, "NUL"),
    ("POST", POST, {"json": GOOD | {"prompt": "x" * LARGEST_BODY}}, 413, "bytes"),
    ("POST", POST, {"json": GOOD, "headers": {"X-Request-Id": "two words"}}, 400, "X-Request-Id"),
    ("POST", POST, {"json": GOOD, "headers": {"X-Request-Id": "é".encode()}}, 400, "X-Request-Id"),
    ("POST", POST, {"json": GOOD, "headers": {"X-Request-Id": "x" * 201}}, 400, "X-Request-Id"),
    ("POST", POST, {"json": GOOD, "headers": {"X-Request-Id": ""}}, 400, "X-Request-Id"),
    ("GET", POST, {}, 405, "Method Not Allowed"),
    ("GET", "/v1/nothing", {}, 404, "Not Found"),
    ("GET", SEARCH, {}, 400, "q is missing"),
    ("GET", SEARCH, {"params": {"q": " "}}, 400, "q is text"),
    ("GET", SEARCH, {"params": {"q": "\0"}}, 400, "q is text"),
    ("GET", SEARCH, {"params": {"q": "x" * 2001}}, 400, "q is text"),
    ("GET", SEARCH, {"params": {"q": "tea", "user": "\0"}}, 400, "user is text"),
    ("GET", SEARCH, {"params": {"q": "tea", "limit": "0"}}, 400, "limit"),
    ("GET", SEARCH, {"params": {"q": "tea", "limit": "101"}}, 400, "limit"),
    ("GET", SEARCH, {"params": {"q": "tea", "limit": "1e2"}}, 400, "limit"),
    ("GET", SEARCH, {"params": {"q": "tea", "limit": "٣"}}, 400, "limit"),
    ("GET", SEARCH, {"params": {"q": "tea", "limit": "9" * 5000}}, 400, "limit"),
]


async def test_wrong_values_are_refused_with_a_reason(client: httpx.AsyncClient) -> None:
    for method, path, wrong, status, words in WRONG:
        answer = await client.request(method, path, **wrong)
        shown = f"{method} {path} {str(wrong)[:200]}: {answer.text}"
        assert answer.status_code == status, shown
        assert answer.headers["Content-Type"] == "application/problem+json", shown
        assert answer.json()["status"] == status, shown
        assert words in answer.json()["detail"], shown


TEXTS = ["'; DROP TABLE memories; --", "$where", '{"$gt": ""}', "%", "?!", "💧 naïve", "x" * 2000, "\ufffd"]


async def test_text_is_only_text(client: httpx.AsyncClient) -> None:
    """Whatever it looks like, as a prompt, as a user, in a search."""
    for text in TEXTS:
        answer = await client.post(POST, json={"prompt": text, "user": text[:200]})
        assert answer.status_code == 200, answer.text
        for parameters in ({"q": text}, {"q": "tea", "user": text}):
            found = await client.get(SEARCH, params=parameters)
            assert (found.status_code, found.json()) == (200, {"memories": []})


async def test_a_request_that_is_sent_again_is_answered_and_extracted_once(client: httpx.AsyncClient) -> None:
    """As callers see it: the request's id is the key, of its own tenant."""
    jobs = []
    for tenant in ("acme", "acme", "globex"):
        headers = {"X-Request-Id": "request-7", "Authorization": f"Bearer {TOKENS[tenant]}"}
        answer = await client.post(POST, content=json.dumps(GOOD), headers=headers)
        assert (answer.status_code, answer.json()["id"]) == (200, "cmpl-request-7")
        jobs.append(answer.headers["X-Extraction-Job"])
    assert jobs[0] == jobs[1] != jobs[2]
    named = await client.post(POST, json=GOOD)
    other = await client.post(POST, json=GOOD)
    assert named.headers["X-Request-Id"] != other.headers["X-Request-Id"]

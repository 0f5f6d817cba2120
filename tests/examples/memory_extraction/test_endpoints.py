"""The other extractor and embedder: any endpoint that speaks OpenAI's protocol."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest

from examples.memory_extraction.batch import run_batch
from examples.memory_extraction.extraction import MemoryExtraction

from .conftest import TEA, TEA_MEMORIES, Answer, Endpoint, ask, chat, opened, serving, texts


@pytest.fixture
async def asking(fresh_sqlite_url: str, endpoint: Endpoint) -> AsyncIterator[MemoryExtraction]:
    """The system with both at the endpoint."""
    changes: dict[str, Any] = dict.fromkeys(("extractor_model", "embedder_model"), "small")
    changes |= dict.fromkeys(("extractor_url", "embedder_url"), endpoint.url)
    async with opened(fresh_sqlite_url, **changes, endpoint_key="secret-key", dimensions=8) as memory:
        yield memory


async def work(memory: MemoryExtraction, most: int | None = None) -> None:
    """What is due, and no more."""
    await memory.app.worker(**memory.worker_options(), until_idle=True, max_jobs=most).run()


async def test_the_endpoint_extracts_and_embeds(asking: MemoryExtraction, endpoint: Endpoint) -> None:
    """Asked with model, key and conversation; what it says is stored, and found by its vectors."""
    job = await ask(asking, "acme", "request-1")
    await work(asking)
    assert (await job.arefresh()).state == "completed"
    path, headers, body = endpoint.asked.get(timeout=1)
    assert (path, headers["Authorization"], body["model"]) == ("/v1/chat/completions", "Bearer secret-key", "small")
    assert TEA in body["messages"][1]["content"]
    path, _, body = endpoint.asked.get(timeout=1)
    assert (path, body["input"], body["dimensions"]) == ("/v1/embeddings", list(reversed(TEA_MEMORIES)), 8)
    assert await texts(asking, "acme") == TEA_MEMORIES
    (nearest,) = await asking.search("acme", "x" * len(TEA_MEMORIES[1]), limit=1)  # the stub's vector is the length
    assert nearest.text == TEA_MEMORIES[1]


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_a_busy_endpoint_is_asked_again_by_windlass(
    asking: MemoryExtraction, endpoint: Endpoint, status: int
) -> None:
    """At the moment that it names; then everything is there once."""
    endpoint.answers = [(status, {"Retry-After": "120"}, "busy"), (status, {"Retry-After": "soon"}, "")]
    job = await ask(asking, "acme", "request-1")
    await work(asking, most=1)
    waiting = await job.arefresh()
    assert (waiting.state, waiting.attempt) == ("pending", 1)
    assert f"answered {status}" in str(waiting.error)
    assert 100 < (waiting.run_at - datetime.now(UTC)).total_seconds() < 130
    await asking.app.arun_now(job.id)
    await work(asking, most=1)
    assert (await job.arefresh()).attempt == 2
    assert (await job.arefresh()).run_at < waiting.run_at  # no number: by the job's own backoff
    await asking.app.arun_now(job.id)
    await work(asking, most=1)
    assert ((await job.arefresh()).state, await texts(asking, "acme")) == ("completed", TEA_MEMORIES)


async def test_an_endpoint_that_is_gone_is_asked_again(asking: MemoryExtraction, endpoint: Endpoint) -> None:
    """Nobody listens there."""
    endpoint.close()
    job = await ask(asking, "acme", "request-1")
    await work(asking)
    assert (await job.arefresh()).state == "pending"
    assert "cannot be reached" in str((await job.arefresh()).error)


VECTORS = {"data": [{"index": 0, "embedding": [0.0] * 8}, {"index": 1, "embedding": [1.0] * 8}]}
FOUND = json.dumps({"memories": [{"kind": "fact", "text": "a"}, {"kind": "fact", "text": "b"}]})
JUNK: dict[str, tuple[list[Answer], str]] = {
    "not JSON": ([(200, {}, "<html>hello</html>")], "cannot be used.*<html>hello"),
    "nothing": ([(200, {}, "")], "cannot be used"),
    "no choices": ([(200, {}, '{"choices": []}')], "no choices"),
    "prose": ([chat("I found nothing, sorry.")], "cannot be used.*I found nothing"),
    "another kind": ([chat('{"memories": [{"kind": "gossip", "text": "x"}]}')], "cannot be used.*gossip"),
    "NUL": ([chat('{"memories": [{"kind": "fact", "text": "a\\u0000b"}]}')], "cannot be used"),
    "no text": ([chat('{"memories": [{"kind": "fact"}]}')], "cannot be used.*text"),
    "who are you": ([(401, {}, "wrong key")], "answered 401.*wrong key"),
    "too few vectors": ([chat(FOUND), (200, {}, '{"data": []}')], "not return 2 vectors of 8 numbers"),
    "zeros": ([chat(FOUND), (200, {}, json.dumps(VECTORS))], "no direction"),
}


async def test_junk_is_a_clear_failure(asking: MemoryExtraction, endpoint: Endpoint) -> None:
    """For good, since asking again would bring the same; the error says what came."""
    for kind, (answers, words) in JUNK.items():
        endpoint.answers = list(answers)
        job = await ask(asking, "acme", kind)
        await work(asking)
        failed = await job.arefresh()
        assert (failed.state, failed.attempt) == ("failed", 1), kind
        assert re.search(words, str(failed.error)), f"{kind}: {failed.error}"
    assert await texts(asking, "acme") == []


async def test_a_batch_that_you_drive_heeds_them_too(asking: MemoryExtraction, endpoint: Endpoint) -> None:
    """`run_batch`: what is busy is requeued as it wishes, what is junk fails, the rest is stored."""
    for number, answer in enumerate([(429, {"Retry-After": "120"}, ""), chat("prose")]):
        endpoint.answers = [answer]
        await ask(asking, "acme", f"request-{number}")
        assert await run_batch(asking) == 1
    await ask(asking, "acme", "request-2")
    assert await run_batch(asking) == 1
    done, junk, busy = await asking.app.alist()
    assert (done.state, junk.state, busy.state) == ("completed", "failed", "pending")
    assert "prose" in str(junk.error)
    assert 100 < (busy.run_at - datetime.now(UTC)).total_seconds() < 130
    assert await texts(asking, "acme") == TEA_MEMORIES


async def test_a_search_says_that_the_embedder_is_busy(asking: MemoryExtraction, endpoint: Endpoint) -> None:
    async with serving(asking) as client:
        endpoint.answers = [(429, {}, ""), (200, {}, "junk")]
        for status in (503, 502, 200):
            assert (await client.get("/v1/memories/search", params={"q": "tea"})).status_code == status

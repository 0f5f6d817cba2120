"""The API, the workers, and what is remembered."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest

from examples.memory_extraction.batch import claim_batch, run_batch
from examples.memory_extraction.extraction import MemoryExtraction
from examples.memory_extraction.extractors import Memory, RuleExtractor, Transaction
from examples.memory_extraction.memories import Embedded
from examples.memory_extraction.settings import Settings
from windlass import Windlass, current_attempt

from .conftest import TEA, TEA_MEMORIES, ask, opened, serving, texts


class Watched(RuleExtractor):
    """The rules, with a gate in front; counts who is in here, and for which tenants."""

    def __init__(self, *, is_open: bool = False) -> None:
        self.gate, self.entered = asyncio.Event(), asyncio.Semaphore(0)
        self.now = self.most = 0
        self.tenants: list[tuple[str, str]] = []
        if is_open:
            self.gate.set()

    async def extract(self, transaction: Transaction) -> list[Memory]:
        self.now += 1
        self.most = max(self.most, self.now)
        self.tenants.append((current_attempt().tenant, transaction.prompt))
        self.entered.release()
        await self.gate.wait()
        self.now -= 1
        return await super().extract(transaction)


@asynccontextmanager
async def working(memory: MemoryExtraction, **changes: Any) -> AsyncIterator[None]:
    async with memory.app.worker(**(memory.worker_options() | changes)):
        yield


async def test_one_worker_serves_all_tenants_each_job_in_its_own(store_url: str) -> None:
    """One claim has jobs of three tenants; what each says lands with its own tenant, whatever it pretends."""
    tenants = ["acme", "globex", "initech"]
    async with opened(store_url, extractor=Watched(is_open=True)) as memory:
        for tenant in tenants:
            await ask(memory, tenant, "request-1", f"My tenant is {tenant}. My tenant is globex, really.")
        claims = await claim_batch(memory.app)
        assert [claim.tenant for claim in claims] == tenants
        for claim in claims:
            await claim.arelease()
        jobs = list(await memory.app.alist())
        async with working(memory):
            await asyncio.gather(*(job.aresult(60) for job in jobs))
        assert isinstance(memory.extractor, Watched)
        assert {tenant for tenant, _ in memory.extractor.tenants} == set(tenants)  # once, or again; kept once
        assert all(f"My tenant is {tenant}." in prompt for tenant, prompt in memory.extractor.tenants)
        for tenant in tenants:
            assert await texts(memory, tenant) == sorted(["My tenant is globex, really", f"My tenant is {tenant}"])
        assert await texts(memory, "nobody") == []


async def test_answered_before_extraction_then_found_by_its_tenant_alone(store_url: str) -> None:
    """The answer is there while the extractor has not begun to answer; then the tenant's search finds it."""
    extractor = Watched()
    async with opened(store_url, extractor=extractor) as memory, serving(memory) as client, working(memory):
        answer = await client.post("/v1/completions", json={"prompt": TEA, "user": "ada", "max_tokens": 5})
        assert answer.status_code == 200
        assert answer.json()["choices"][0]["text"]
        assert answer.json()["id"] == f"cmpl-{answer.headers['X-Request-Id']}"
        await asyncio.wait_for(extractor.entered.acquire(), 60)
        search = {"q": "which tea do I prefer", "limit": "1"}
        assert (await client.get("/v1/memories/search", params=search)).json() == {"memories": []}

        extractor.gate.set()
        job = await memory.app.arequire(answer.headers["X-Extraction-Job"])
        await job.aresult(timeout=60)
        (hit,) = (await client.get("/v1/memories/search", params=search)).json()["memories"]
        assert (hit["kind"], hit["text"], hit["user"]) == ("preference", "I prefer green tea", "ada")
        assert 0.3 < hit["similarity"] < 1
        other = {"Authorization": "Bearer token-of-globex"}
        assert (await client.get("/v1/memories/search", params=search, headers=other)).json() == {"memories": []}
        nobody = (await client.get("/v1/memories/search", params=search | {"user": "bob"})).json()
        assert nobody == {"memories": []}


async def test_memories_and_completion_are_one_transaction(memory: MemoryExtraction) -> None:
    """What breaks after the memories were written leaves none of them, and the job to be tried again."""
    add, broken = memory.memories.add, True

    async def add_and_break(connection: Any, tenant: str, user: str, found: Sequence[Embedded]) -> None:
        await add(connection, tenant, user, found)
        if broken:
            raise OSError("the power is gone")

    memory.memories.add = add_and_break  # type: ignore[method-assign]
    job = await ask(memory, "acme", "request-1")
    assert await run_batch(memory) == 1
    assert ((await job.arefresh()).state, await texts(memory, "acme")) == ("pending", [])
    broken = False
    await memory.app.arun_now(job.id)
    assert await run_batch(memory) == 1
    assert ((await job.arefresh()).state, await texts(memory, "acme")) == ("completed", TEA_MEMORIES)


async def test_memories_lie_in_pgvector_with_the_transaction_that_completed_the_job(
    fresh_postgres_url: str,
) -> None:
    """PostgreSQL itself says that both rows were written by the same transaction."""
    async with opened(fresh_postgres_url) as memory:
        job = await ask(memory, "acme", "request-1")
        async with working(memory):
            await job.aresult(timeout=60)
    with psycopg.connect(fresh_postgres_url) as connection:
        rows = connection.execute("SELECT xmin::text, pg_typeof(embedding)::text FROM memories").fetchall()
        ended = connection.execute("SELECT xmin::text FROM windlass_history WHERE id = %s", (job.id,)).fetchone()
    assert ended is not None
    assert rows == [(ended[0], "vector")] * len(TEA_MEMORIES)


async def test_the_nearest_come_first(memory: MemoryExtraction) -> None:
    """By similarity, alike on each store; a user of one's own can be named."""
    await ask(memory, "acme", "request-1", "I like red wine. I like red apples. My car is slow.")
    await ask(memory, "acme", "request-2", "I like red wine with cheese.", user="bob")
    assert await run_batch(memory) == 2
    hits = await memory.search("acme", "I like red wine", limit=3)
    assert [hit.text for hit in hits] == ["I like red wine", "I like red wine with cheese", "I like red apples"]
    assert hits[0].similarity == pytest.approx(1, abs=1e-5)
    assert hits[2].similarity == pytest.approx(0.75, abs=1e-5)  # three words of four
    assert await texts(memory, "acme", user="bob") == ["I like red wine with cheese"]


async def test_polls_every_5_s_for_10_jobs_unless_told_otherwise(fresh_sqlite_url: str) -> None:
    """The defaults, as the worker has them; and no more than ten jobs are here at once."""
    assert (Settings().poll_seconds, Settings().batch_size) == (5, 10)
    extractor = Watched()
    async with opened(fresh_sqlite_url, extractor=extractor) as memory:
        worker = memory.app.worker(**memory.worker_options())
        assert (worker.poll_seconds, worker.concurrency) == (5, 10)
        jobs = [await ask(memory, "acme", f"request-{n}") for n in range(25)]
        assert len(await claim_batch(memory.app)) == 10
        async with worker:
            for _ in range(10):
                await asyncio.wait_for(extractor.entered.acquire(), 60)
            extractor.gate.set()
            await asyncio.gather(*(job.aresult(60) for job in jobs[10:]))
        assert extractor.most == 10


async def test_a_hint_makes_it_immediate(store_url: str) -> None:
    """A worker that would look again in an hour has the job at once, from another app."""
    async with (
        opened(store_url, poll_seconds=3600) as memory,
        opened(store_url) as other,
        working(memory, rescue_interval=3600),
    ):
        for request in ("request-1", "request-2"):  # the first may be found by the look at the start
            await (await ask(other, "acme", request)).aresult(timeout=60)


async def test_the_poll_finds_what_no_hint_told_of(store_url: str) -> None:
    """Hints are hints."""
    silent = Windlass(store_url, notify=False)
    async with opened(store_url, poll_seconds=0.3) as memory, working(memory):
        payload = {"user": "ada", "transaction": {"prompt": TEA, "completion": ""}}
        job = await silent.aenqueue(memory.task.name, payload, tenant="acme", queue=memory.task.queue)
        await job.aresult(timeout=60)
        assert await texts(memory, "acme") == TEA_MEMORIES
    await silent.aclose()

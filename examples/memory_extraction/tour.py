"""The tour: requests that are sent twice, a worker that stalls and returns, a search by another tenant."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

from windlass import Attempt, LeaseLost

from ..tour import Check, Progress
from .batch import claim_batch, extract, recover_stale
from .extraction import MemoryExtraction
from .extractors import Transaction
from .settings import Settings

TENANTS = ("acme", "globex")
PROMPTS = (
    "I live in Lisbon. How is the weather?",
    "I prefer green tea to coffee. Never suggest coffee!",
    "My sister is called Mia. She visits on Friday.",
    "Please always answer in metric units. How far is the sea?",
    "How are you today?",
)
MEMORIES = 5  # the number of memories in these prompts


def tour(url: str, progress: Progress) -> list[Check]:
    return asyncio.run(_tour(MemoryExtraction(Settings(url=url)), progress))


async def _tour(memory: MemoryExtraction, progress: Progress) -> list[Check]:
    steps = len(TENANTS) * len(PROMPTS)
    try:
        await asyncio.to_thread(memory.prepare)
        enqueued = await _ask(memory)
        stalled = await claim_batch(memory.app, limit=4)
        await recover_stale(memory.app, stale_before=datetime.now(UTC) + timedelta(minutes=1))
        for claim in stalled:
            await memory.app.arun_now(claim.job.id)  # do not wait for its backoff
        await _work(memory, progress, steps)
        refused = [await _is_refused(memory, claim) for claim in stalled]
        stored = [len(await memory.search(tenant, "anything", limit=100)) for tenant in TENANTS]
        (best,) = await memory.search("acme", "tea or coffee?", limit=1)
        return [
            Check("jobs for twice as many requests: each was sent twice", steps, enqueued),
            Check("late answers of a stalled worker that were refused", len(stalled), sum(refused)),
            Check("memories stored, once each, of two tenants", [MEMORIES] * len(TENANTS), stored),
            Check("nearest to 'tea or coffee?'", "I prefer green tea to coffee", best.text),
        ]
    finally:
        await memory.close()


async def _ask(memory: MemoryExtraction) -> int:
    """Send each request twice. Return the number of jobs."""
    jobs = set()
    for tenant in TENANTS:
        for number, prompt in enumerate(PROMPTS):
            for _ in range(2):
                job = await memory.enqueue(tenant, "ada", Transaction(prompt, "I see."), f"request-{number}")
                jobs.add(job.id)
    return len(jobs)


async def _work(memory: MemoryExtraction, progress: Progress, steps: int) -> None:
    async with memory.app.worker(**memory.worker_options()):
        for done, job in enumerate(await memory.app.alist(type=memory.task.name), start=1):
            await job.aresult(timeout=30)
            progress(done, steps)


async def _is_refused(memory: MemoryExtraction, claim: Attempt) -> bool:
    """The stalled worker returns and tries to write its memories. Return whether that is refused."""
    try:
        await extract(memory, claim)
    except LeaseLost:
        return True
    return False

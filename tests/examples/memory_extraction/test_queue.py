"""What the queue promises to those who drive it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from examples.memory_extraction.batch import (
    claim_batch,
    extract,
    mark_complete,
    mark_failed,
    recover_stale,
    requeue,
    run_batch,
)
from examples.memory_extraction.extraction import QUEUE, MemoryExtraction
from examples.memory_extraction.extractors import Transaction
from windlass import Attempt, Conflict, InvalidInput, Job, LeaseLost

from .conftest import TEA, TEA_MEMORIES, ask, opened, texts

FAR_FUTURE = datetime(2999, 1, 1, tzinfo=UTC)


async def test_enqueue_takes_tenant_user_payload_and_key_and_returns_at_once(memory: MemoryExtraction) -> None:
    """The job is there when the call returns, with all that it was given, and nothing of it was done."""
    job = await memory.enqueue("acme", "ada", Transaction(TEA, "I see."), "request-1")
    assert job.created
    stored = await job.arefresh()
    assert (stored.state, stored.attempt, stored.queue, stored.tenant) == ("pending", 0, QUEUE, "acme")
    assert stored.unique_key == "request-1"
    assert stored.input == {"user": "ada", "transaction": {"prompt": TEA, "completion": "I see."}}
    assert await texts(memory, "acme") == []
    with pytest.raises(InvalidInput, match="tenant"):
        await ask(memory, "", "request-2")


async def test_the_same_key_is_a_silent_no_op_also_after_completion(memory: MemoryExtraction) -> None:
    """Ten at once are one job; so is one that comes after it has completed; another tenant's is its own."""
    jobs = await asyncio.gather(*(ask(memory, "acme", "request-1", f"I have {n} cats.") for n in range(10)))
    assert len({job.id for job in jobs}) == 1
    assert sum(job.created for job in jobs) == 1
    assert await run_batch(memory) == 1
    assert (await jobs[0].arefresh()).state == "completed"

    late = await ask(memory, "acme", "request-1", "I have nothing.")
    assert (late.id, late.created, late.state) == (jobs[0].id, False, "completed")
    other = await ask(memory, "globex", "request-1")
    assert other.created
    assert other.id != late.id
    assert await run_batch(memory) == 1  # the other one's
    assert await texts(memory, "globex") == TEA_MEMORIES
    assert len(await texts(memory, "acme")) == 1
    assert "I have nothing" not in await texts(memory, "acme")


async def enqueue_at(memory: MemoryExtraction, run_at: datetime) -> Job:
    return await memory.task.using(tenant="acme", run_at=run_at).aenqueue("ada", Transaction(TEA, ""))


async def test_a_batch_has_the_due_jobs_by_next_run_then_by_creation(memory: MemoryExtraction) -> None:
    """The future is left alone, and so is what came due after the moment that the caller names."""
    now = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)
    minutes = [3, 9, 3, -60, 6]  # before that hour; the fourth is for later
    jobs = [await enqueue_at(memory, now - timedelta(minutes=ago)) for ago in minutes]
    memory.app.store.clock.offset += timedelta(hours=1)

    early = await claim_batch(memory.app, now - timedelta(minutes=5))
    assert [claim.job for claim in early] == [jobs[1], jobs[4]]
    assert [(await job.arefresh()).attempt for job in jobs] == [0, 1, 0, 0, 1]
    for claim in early:
        await claim.arelease()

    claims = await claim_batch(memory.app, now, 3) + await claim_batch(memory.app, now, 3)
    assert [claim.job for claim in claims] == [jobs[1], jobs[4], jobs[0], jobs[2]]
    assert (await jobs[3].arefresh()).state == "pending"
    assert await claim_batch(memory.app, FAR_FUTURE) == []  # the database's clock has the last word


async def test_concurrent_claimers_never_share_a_job(store_url: str) -> None:
    """Four of them, each with connections of its own, take all jobs, and none twice."""
    async with AsyncExitStack() as stack:
        claimers = [await stack.enter_async_context(opened(store_url)) for _ in range(4)]
        jobs = [await ask(claimers[0], f"tenant-{n % 3}", f"request-{n}") for n in range(60)]

        async def take_all(memory: MemoryExtraction) -> list[Attempt]:
            taken: list[Attempt] = []
            while claims := await claim_batch(memory.app, limit=4):
                taken += claims
            return taken

        taken = [claim.job.id for claims in await asyncio.gather(*map(take_all, claimers)) for claim in claims]
    assert len(taken) == 60
    assert set(taken) == {job.id for job in jobs}


async def test_claimers_do_not_wait_for_each_other(fresh_postgres_url: str) -> None:
    """What another transaction is just claiming is stepped over, not waited for."""
    async with opened(fresh_postgres_url) as memory:
        jobs = [await ask(memory, "acme", f"request-{n}") for n in range(10)]
        with psycopg.connect(fresh_postgres_url) as other:
            ids = [job.id for job in jobs[:5]]
            other.execute("SELECT FROM windlass_jobs WHERE id = ANY(%s) FOR UPDATE", (ids,))
            async with asyncio.timeout(20):
                claims = await claim_batch(memory.app)
        assert [claim.job for claim in claims] == jobs[5:]
        assert [claim.job for claim in await claim_batch(memory.app)] == jobs[:5]


async def test_a_claim_sets_processing_the_locks_time_and_the_attempt(memory: MemoryExtraction) -> None:
    """In the database, not only in the answer; the next claim counts on."""
    job = await ask(memory, "acme", "request-1")
    assert job.claimed_at is None
    (claim,) = await claim_batch(memory.app)
    first = await job.arefresh()
    assert (first.state, first.attempt) == ("running", 1)
    assert first.claimed_at is not None
    assert abs(first.claimed_at - datetime.now(UTC)) < timedelta(seconds=30)
    await requeue(claim, datetime.now(UTC) - timedelta(seconds=1))
    await claim_batch(memory.app)
    second = await job.arefresh()
    assert (second.state, second.attempt) == ("running", 2)
    assert second.claimed_at is not None
    assert second.claimed_at > first.claimed_at


async def test_complete_fail_and_requeue_do_what_they_say(memory: MemoryExtraction) -> None:
    """Completed; failed for good with its error; pending again for that moment."""
    jobs = [await ask(memory, "acme", f"request-{n}") for n in range(3)]
    completed, failed, sent_back = await claim_batch(memory.app)
    moment = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)
    await mark_complete(completed)
    await mark_failed(failed, "no such model")
    await requeue(sent_back, moment)

    done, dead, waiting = [await job.arefresh() for job in jobs]
    assert (done.state, done.error) == ("completed", None)
    assert dead.state == "failed"
    assert dead.error is not None
    assert dead.error.message == "no such model"
    assert (waiting.state, waiting.run_at, waiting.attempt, waiting.worker) == ("pending", moment, 1, None)
    assert await claim_batch(memory.app) == []
    with pytest.raises(Conflict, match="settled already"):
        await mark_complete(completed)


async def test_jobs_that_were_claimed_before_a_moment_are_recovered(memory: MemoryExtraction) -> None:
    """Claims that are younger than the moment are left alone."""
    job = await ask(memory, "acme", "request-1")
    (claim,) = await claim_batch(memory.app)
    assert claim.job.claimed_at is not None
    assert await recover_stale(memory.app, claim.job.claimed_at - timedelta(seconds=1)) == 0
    assert (await job.arefresh()).state == "running"
    assert await recover_stale(memory.app, claim.job.claimed_at + timedelta(seconds=1)) == 1
    assert (await job.arefresh()).state == "pending"


OPERATIONS: dict[str, Callable[[MemoryExtraction, Attempt], Awaitable[None]]] = {
    "mark_complete": lambda memory, claim: mark_complete(claim),
    "mark_failed": lambda memory, claim: mark_failed(claim, "late"),
    "requeue": lambda memory, claim: requeue(claim, FAR_FUTURE),
    "extract": extract,
}


async def test_a_stale_claim_changes_nothing(memory: MemoryExtraction) -> None:
    """Neither while the job waits, nor while another has it, nor when the other has ended it."""
    job = await ask(memory, "acme", "request-1")
    (stale,) = await claim_batch(memory.app)
    await recover_stale(memory.app, datetime.now(UTC) + timedelta(minutes=1))
    await memory.app.arun_now(job.id)

    async def nothing_changes() -> None:
        before = await job.arefresh()
        for operation in OPERATIONS.values():
            with pytest.raises(LeaseLost, match=str(job.id)):
                await operation(memory, stale)
        after = await job.arefresh()
        assert (after.state, after.attempt, after.run_at, after.error, after.lease_expires_at) == (
            before.state, before.attempt, before.run_at, before.error, before.lease_expires_at
        )  # fmt: skip

    await nothing_changes()
    (newer,) = await claim_batch(memory.app)
    await nothing_changes()
    assert await texts(memory, "acme") == []
    await extract(memory, newer)
    await nothing_changes()
    assert (await job.arefresh()).state == "completed"
    assert await texts(memory, "acme") == TEA_MEMORIES

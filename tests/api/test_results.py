"""Waiting for a result."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from tests.api.either import Either
from windlass import Attempt, InvalidInput, JobCancelled, JobNotFound, Windlass


async def claim_one(app: Windlass) -> Attempt:
    """The job that is there: whoever begins to wait for it writes to it, and a claim steps over it meanwhile."""
    async with asyncio.timeout(60):
        while not (attempts := await app.aclaim()):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    (attempt,) = attempts
    return attempt


async def test_a_result_is_waited_for(app: Windlass, either: Either) -> None:
    job = await either.enqueue("send", {})
    waiting: asyncio.Future[Any] = asyncio.ensure_future(either.of(job).result(timeout="60s"))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    attempt = await claim_one(app)
    await attempt.acomplete({"sent": True})
    assert await waiting == {"sent": True}
    assert await either.result(job.id) == {"sent": True}
    assert await either.result(str(job.id), timeout=0) == {"sent": True}


async def test_not_for_ever(app: Windlass, either: Either) -> None:
    job = await either.enqueue("send", {})
    for timeout in (0, 0.05, "50ms", timedelta(milliseconds=50)):
        began = time.monotonic()
        with pytest.raises(TimeoutError, match=str(job.id)):
            await either.of(job).result(timeout=timeout)
        assert time.monotonic() - began < 30
    with pytest.raises(InvalidInput, match="duration"):
        await either.of(job).result(timeout="soon")


async def test_of_a_cancelled_job(app: Windlass, either: Either) -> None:
    job = await either.enqueue("send", {})
    await either.of(job).cancel()
    with pytest.raises(JobCancelled, match=r"send.*was cancelled"):
        await either.of(job).result()


async def test_the_result_of_a_job_that_is_gone(app: Windlass, either: Either) -> None:
    @app.task(keep=0)
    def forget() -> None: ...

    job = await either.enqueue("forget")
    with pytest.raises(InvalidInput, match="keep=0"):
        await either.of(job).result()
    assert await either.run_worker(until_idle=True) == 1
    assert await either.get(job.id) is None
    for id in (job.id, uuid4()):
        with pytest.raises(JobNotFound, match=str(id)):
            await either.result(id)
    deleted = await either.enqueue("send", {})
    waiting: asyncio.Future[Any] = asyncio.ensure_future(either.of(deleted).result(timeout=30))
    await either.of(deleted).delete()
    with pytest.raises(JobNotFound):
        await waiting

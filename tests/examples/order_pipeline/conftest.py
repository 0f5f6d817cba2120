from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from examples.order_pipeline.bank import PlayBank
from examples.order_pipeline.orders import Order, Settings
from examples.order_pipeline.pipeline import Pipeline
from windlass import Job

PATIENCE = 60  # seconds, for what takes none on a machine that does not stall


class FrankBank(PlayBank):
    """A bank that raises what it is told to, once each, and can be held up while it is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.trouble: list[BaseException] = []
        self.entered, self.open = asyncio.Event(), asyncio.Event()
        self.open.set()

    async def charge(self, key: str, cents: int, card: str) -> bool:
        good = await super().charge(key, cents, card)
        if self.trouble:
            raise self.trouble.pop(0)
        self.entered.set()
        await self.open.wait()
        return good


@pytest.fixture
def bank() -> FrankBank:
    return FrankBank()


@pytest.fixture
async def pipeline(store_url: str, bank: FrankBank) -> AsyncIterator[Pipeline]:
    pipeline = Pipeline(store_url, bank, Settings(payment_pause_seconds=0))
    pipeline.books.open({"lamp": 100, "desk": 0})
    yield pipeline
    await pipeline.app.aclose()


@asynccontextmanager
async def working(pipeline: Pipeline, rescue_interval: float = 3600) -> AsyncIterator[None]:
    """A worker that never polls while a test is patient: what it does, hints made it do."""
    async with pipeline.app.worker(concurrency=10, poll_interval=3600, rescue_interval=rescue_interval, grace=1):
        yield


def interruptions(pipeline: Pipeline) -> asyncio.Queue[str | None]:
    """Why attempts were interrupted, as they are told it."""
    told: asyncio.Queue[str | None] = asyncio.Queue()

    @pipeline.app.middleware
    async def notice(attempt: Any, call_next: Any) -> Any:
        try:
            return await call_next()
        except asyncio.CancelledError:
            told.put_nowait(attempt.why)
            raise

    return told


async def work(pipeline: Pipeline) -> None:
    """Until nothing is due."""
    await pipeline.app.arun_worker(until_idle=True, concurrency=10)


async def steps(pipeline: Pipeline, job: Job) -> list[str]:
    """The types of a chain's jobs, from the first to the last."""
    page = await pipeline.app.alist(chain=job.chain_id)
    assert [one.chain_index for one in reversed(page)] == list(range(len(page)))
    return [one.type for one in reversed(page)]


async def until(condition: Callable[[], Awaitable[bool]], seconds: float = PATIENCE) -> None:
    """Look until it holds: for what nobody tells of."""
    async with asyncio.timeout(seconds):
        while not await condition():  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def the(pipeline: Pipeline, type: str) -> Job:
    """The one job of that type."""
    (job,) = await pipeline.app.alist(type=type)
    return job


def lamp(number: str = "1", **details: object) -> Order:
    """An order of two lamps that can be had."""
    return Order(**({"number": number, "customer": "ann", "article": "lamp", "quantity": 2, "cents": 500} | details))  # type: ignore[arg-type]


PLAIN = [("1", "paid", 500), ("1", "reserved", 2), ("1", "shipped", 2)]
"""What the books say of it in the end."""

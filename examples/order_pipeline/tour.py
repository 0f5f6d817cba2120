"""One round: ten orders, of which some are large, some are paid late or never, one waits for the shelf to be filled,
and some are in the hands of a worker that dies."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

from windlass import Job

from ..tour import Check, Progress
from .orders import Order, Settings
from .pipeline import Pipeline

ORDERS = [
    *(Order(f"plain {n}", "ann", "lamp", 2, 5_000) for n in range(4)),
    Order("large", "ann", "lamp", 5, 250_000),
    Order("too large", "bob", "lamp", 5, 900_000),
    Order("late", "bob", "lamp", 1, 2_500, card="slow to clear"),
    Order("never", "bob", "lamp", 1, 2_500, card="stolen"),
    Order("patient", "cleo", "desk", 1, 40_000),
    Order("odd", "cleo", "unicorn", 1, 1),
]
LAMPS = 30


async def _decide(pipeline: Pipeline) -> None:
    """A person who grants what is not too large, and looks until there is nothing more to look at."""
    decided = 0
    while decided < 2:
        for approval in await pipeline.approvals():
            await pipeline.decide(approval.id, granted=approval.input["cents"] < 500_000)
            decided += 1
        await asyncio.sleep(0.02)


async def _lose_a_worker(pipeline: Pipeline) -> int:
    """Somebody takes some of the orders and is never heard of again: how many."""
    lost = await pipeline.app.aclaim(3, types=["place"])
    await pipeline.app.arescue(stale_before=datetime.now(UTC))
    await pipeline.app.arun_now_many(type="place")
    return len(lost)


async def _end(jobs: list[Job], progress: Progress) -> list[str]:
    done = 0

    async def end(job: Job) -> str:
        nonlocal done
        outcome = await job.aresult(timeout=30)
        done += 1
        progress(done, len(jobs))
        return str(outcome.state)

    return await asyncio.gather(*map(end, jobs))


async def _round(url: str, progress: Progress) -> list[Check]:
    pipeline = Pipeline(url, settings=Settings(payment_pause_seconds=0, stock_pause_seconds=0.5))
    pipeline.books.open({"lamp": LAMPS, "desk": 0})
    try:
        jobs = [await pipeline.order(order) for order in ORDERS]
        lost = await _lose_a_worker(pipeline)
        async with pipeline.app.worker(concurrency=10):
            await _decide(pipeline)
            await pipeline.goods_in.aenqueue("desk", 1)
            states = await _end(jobs, progress)
    finally:
        await pipeline.app.aclose()
    entries, left = pipeline.books.entries(), sum(pipeline.books.stock().values())
    paid = sum(amount for _, what, amount in entries if what == "paid")
    ends = tuple(states.count(state) for state in ("shipped", "unpaid", "refused"))
    return [
        Check(f"orders shipped, unpaid, refused, though a worker died with {lost}", (7, 2, 1), ends),
        Check("cents in the ledger, each payment once", 4 * 5_000 + 250_000 + 2_500 + 40_000, paid),
        Check("lamps and desks left on the shelves", LAMPS - 4 * 2 - 5 - 1, left),
    ]


def tour(url: str, progress: Progress) -> list[Check]:
    return asyncio.run(_round(url, progress))

"""The tour: ten orders. Some are large, some are paid late or never, one waits for stock, and some are claimed by a
worker that dies."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import UTC, datetime

from windlass import Attempt, Job, LeaseLost

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
UNWANTED = Order("unwanted", "dora", "lamp", 1, 2_500)
LAMPS = 30


async def _decide(pipeline: Pipeline) -> None:
    """A person who decides on the two approvals, and grants the smaller one."""
    decided = 0
    while decided < 2:
        for approval in await pipeline.approvals():
            await pipeline.decide(approval.id, granted=approval.input["cents"] < 500_000)
            decided += 1
        await asyncio.sleep(0.02)


async def _lose_a_worker(pipeline: Pipeline) -> list[Attempt]:
    """A worker claims some of the orders and stalls, so they are rescued. The jobs of one customer are deleted."""
    lost = await pipeline.app.aclaim(4, types=["place"])
    await pipeline.app.arescue(stale_before=datetime.now(UTC))
    await pipeline.forget(UNWANTED.customer)
    await pipeline.app.arun_now_many(type="place")
    return lost


async def _return_late(lost: list[Attempt]) -> dict[str, int]:
    """The stalled worker tries to renew its leases. Return the reasons of the refusals, with their numbers."""
    reasons: Counter[str] = Counter()
    for attempt in lost:
        try:
            await attempt.arenew()
        except LeaseLost as error:
            reasons[str(error).partition(": ")[2]] += 1
    return dict(reasons)


async def _count_twice(pipeline: Pipeline) -> tuple[int, int]:
    """Ask for two counts at once, and for a third one later. Return the number of chains after each.

    The queue is paused at first: a quick worker would finish the first count before the second is asked for."""
    await pipeline.app.apause(pipeline.stocktake.queue)
    counts = [await pipeline.count("desk") for _ in range(2)]
    await pipeline.app.aresume(pipeline.stocktake.queue)
    first = len({job.id for job in counts})
    await counts[0].aresult(timeout=30)
    later = await pipeline.count("desk")
    await later.aresult(timeout=30)
    return first, len({job.id for job in (*counts, later)})


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
        _, *jobs = [await pipeline.order(order) for order in (UNWANTED, *ORDERS)]
        lost = await _lose_a_worker(pipeline)
        reasons = await _return_late(lost)
        async with pipeline.app.worker(concurrency=10):
            await _decide(pipeline)
            await pipeline.goods_in.aenqueue("desk", 1)
            states = await _end(jobs, progress)
            counts = await _count_twice(pipeline)
    finally:
        await pipeline.app.aclose()
    entries, left = pipeline.books.entries(), sum(pipeline.books.stock().values())
    paid = sum(amount for _, what, amount in entries if what == "paid")
    ends = tuple(states.count(state) for state in ("shipped", "unpaid", "refused"))
    return [
        Check(f"orders shipped, unpaid, refused, though a worker died with {len(lost) - 1}", (7, 2, 1), ends),
        Check("cents in the ledger, each payment once", 4 * 5_000 + 250_000 + 2_500 + 40_000, paid),
        Check("why that worker's late renewals were refused", {"taken by another": 3, "not found": 1}, reasons),
        Check("stocktakes, asked for twice at once and once later", (1, 2), counts),
        Check("lamps and desks left on the shelves", LAMPS - 4 * 2 - 5 - 1, left),
    ]


def tour(url: str, progress: Progress) -> list[Check]:
    return asyncio.run(_round(url, progress))

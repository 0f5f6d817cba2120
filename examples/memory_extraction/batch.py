"""The pull interface: claim a batch, and settle each claim in your own loop.

Each function takes the claim, not the job's id. A claim that was lost changes nothing and raises `LeaseLost`.
Windlass's worker does all this by itself. `run_batch` is for a cron job that processes one batch.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import datetime

import msgspec

from windlass import Attempt, Fail, LeaseLost, Windlass

from .extraction import QUEUE, MemoryExtraction
from .extractors import Transaction


async def claim_batch(app: Windlass, now: datetime | None = None, limit: int = 10) -> list[Attempt]:
    """Claim up to `limit` due jobs of all tenants, ordered by their next run, then by their creation.

    The database's clock decides which jobs are due, because clocks differ. With an earlier `now`, jobs that became due
    after it are left out.
    """
    claims = await app.aclaim(limit, queues=[QUEUE], lease=None)
    early = [claim for claim in claims if now is not None and claim.job.run_at > now]
    for claim in early:
        await claim.arelease()
    return [claim for claim in claims if claim not in early]


async def mark_complete(claim: Attempt) -> None:
    await claim.acomplete()


async def mark_failed(claim: Attempt, error: BaseException | str) -> None:
    """Fail the job, even if attempts are left."""
    await claim.afail(error)


async def requeue(claim: Attempt, next_run_at: datetime | None, error: BaseException | str = "") -> None:
    """Make the job pending until `next_run_at`. With None the error or the job's backoff decides the time. A job
    without attempts left fails."""
    await claim.aretry(error, at=next_run_at)


async def recover_stale(app: Windlass, stale_before: datetime) -> int:
    """Rescue the jobs of workers that last renewed their leases before this time. Return their number."""
    return await app.arescue(stale_before)


async def run_batch(memory: MemoryExtraction) -> int:
    """Process one batch, with all its jobs at once. Return their number."""
    claims = await claim_batch(memory.app, limit=memory.settings.batch_size)
    await asyncio.gather(*(_run(memory, claim) for claim in claims))
    return len(claims)


async def extract(memory: MemoryExtraction, claim: Attempt) -> None:
    """Process one claim, as the worker's handler does."""
    transaction = msgspec.convert(claim.job.input["transaction"], Transaction)
    await memory.process(claim, claim.job.input["user"], transaction)


async def _run(memory: MemoryExtraction, claim: Attempt) -> None:
    with suppress(LeaseLost):  # another worker has the job now
        try:
            await extract(memory, claim)
        except LeaseLost:
            raise
        except Fail as error:
            await mark_failed(claim, error)
        except Exception as error:
            await requeue(claim, None, error)

"""The queue for those who drive their own loop: claim a batch, and say of each claim what came of it.

Each function takes the claim and not the job's id: a claim that was given up meanwhile changes nothing any more, and
`LeaseLost` says so. Windlass's own worker does all this by itself; a cron job that works off one batch is `run_batch`.
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
    """Up to `limit` jobs that are due, of all tenants: by their next run, then by their creation.

    What is due is the database's to say, since clocks differ; an earlier `now` leaves out what came due after it.
    """
    claims = await app.aclaim(limit, queues=[QUEUE], lease=None)
    early = [claim for claim in claims if now is not None and claim.job.run_at > now]
    for claim in early:
        await claim.arelease()
    return [claim for claim in claims if claim not in early]


async def mark_complete(claim: Attempt) -> None:
    await claim.acomplete()


async def mark_failed(claim: Attempt, error: BaseException | str) -> None:
    """For good, whatever attempts are left."""
    await claim.afail(error)


async def requeue(claim: Attempt, next_run_at: datetime | None, error: BaseException | str = "") -> None:
    """Pending again, and not before that moment; None leaves it to the error, or to the job's backoff. What has no
    attempt left has failed."""
    await claim.aretry(error, at=next_run_at)


async def recover_stale(app: Windlass, stale_before: datetime) -> int:
    """Give back what was claimed by workers that were last heard of before that moment: how many jobs."""
    return await app.arescue(stale_before)


async def run_batch(memory: MemoryExtraction) -> int:
    """One batch, all its jobs at once: how many there were."""
    claims = await claim_batch(memory.app, limit=memory.settings.batch_size)
    await asyncio.gather(*(_run(memory, claim) for claim in claims))
    return len(claims)


async def extract(memory: MemoryExtraction, claim: Attempt) -> None:
    """What the worker's handler does, with a claim of one's own."""
    transaction = msgspec.convert(claim.job.input["transaction"], Transaction)
    await memory.process(claim, claim.job.input["user"], transaction)


async def _run(memory: MemoryExtraction, claim: Attempt) -> None:
    with suppress(LeaseLost):  # another has it by now
        try:
            await extract(memory, claim)
        except LeaseLost:
            raise
        except Fail as error:
            await mark_failed(claim, error)
        except Exception as error:
            await requeue(claim, None, error)

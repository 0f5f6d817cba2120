"""Chains of short steps: a job is completed and the next one of its chain claimed, in one statement."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import NamedTuple
from uuid import UUID, uuid4

from ..app import Windlass
from ..errors import WindlassError
from ..job import Job
from ..logs import Log
from ..stores.store import Refusal
from .ledger import Place
from .unanswered import Unanswered
from .unwritten import Ended

log = Log("windlass.worker")


class NextJob(NamedTuple):
    """The next job of a chain, claimed for this worker in the statement that completed the job before it."""

    job: Job
    token: UUID
    began: float
    place: Place


Write = Callable[[list[Ended]], Awaitable[None]]
Taken = Callable[[list[Ended], list[Refusal], NextJob | None, float], None]
Lost = Callable[[Unanswered], None]


class HandOver:
    """`write` writes a batch until the store has taken it. `taken` is called when it has; `lost` with a claim of the
    next job whose answer was lost."""

    def __init__(self, app: Windlass, name: str, write: Write, taken: Taken, lost: Lost) -> None:
        self.app, self.name, self.lost = app, name, lost
        self._write, self._taken = write, taken

    async def write(self, batch: list[Ended], place: Place) -> None:
        """Write a batch of one. The next job of its chain gets the place."""
        token, began, found = uuid4(), time.monotonic(), False
        try:
            found = await self._complete_and_claim_next(batch[0], token, began, place)
        except Exception as error:
            log.warning("job %s: the next job of its chain is claimed separately: %s", batch[0][1].id, error)
            found = await self._write_and_adopt_next(batch, token, began, place)
        except BaseException:  # cancelled: the store may have claimed the next job, or may still do so
            self._lose_next(batch[0], token, began)
            raise
        finally:
            if not found:
                place.release()

    async def _complete_and_claim_next(self, ended: Ended, token: UUID, began: float, place: Place) -> bool:
        """Whether the next job was claimed."""
        settlement = ended[1]
        done = await self.app.arun_for_worker(lambda: self.app.store.hand_over(settlement, token, self.name))
        next_job = None if done.job is None else NextJob(done.job, token, began, place)
        self._taken([ended], done.refusals, next_job, began)
        return next_job is not None

    async def _write_and_adopt_next(self, batch: list[Ended], token: UUID, began: float, place: Place) -> bool:
        """Whether the next job had been claimed before the answer was lost."""
        try:
            await self._write(batch)
            jobs = await self.app.arun_for_worker(lambda: self.app.store.adopt(token))
        except BaseException as error:
            self._lose_next(batch[0], token, began)
            if isinstance(error, WindlassError):
                return False
            raise
        if not jobs:  # the server may still carry it out
            self._lose_next(batch[0], token, began)
        for job in jobs:
            self._taken([], [], NextJob(job, token, began, place), began)
        return bool(jobs)

    def _lose_next(self, ended: Ended, token: UUID, began: float) -> None:
        if (next_job := ended[1].continues) is not None:
            self.lost(Unanswered(token, next_job.queue, began))

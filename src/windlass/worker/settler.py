"""Settlements, many at a time: one goes out when the one before has returned, with all that has gathered meanwhile.

No timer: small batches when there is little to do, large ones under load. Where handlers are quicker than the store,
what waits here is bounded: the settler is full at a few batches, and until that has changed no job is claimed or
started.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from contextlib import suppress
from uuid import UUID, uuid4

from ..app import Windlass
from ..attempt import Attempt
from ..errors import Conflict, InvalidInput, JobNotFound, WindlassError
from ..job import Job, JobError, NewJob
from ..lifecycle import FAILED
from ..logs import Log
from ..outcome import Settlement, decide, encode_error
from ..stores.store import Refusal, may_be_handed_over

log = Log("windlass.worker")

MOST_ROWS = 1000
MOST_BYTES = 8 * 1024 * 1024
BATCHES_WAITING = 2  # beside the one that is on its way: always enough for the next
ROWS_WAITING, BYTES_WAITING = BATCHES_WAITING * MOST_ROWS, BATCHES_WAITING * MOST_BYTES
LONGEST_WAIT = 15.0

Ended = tuple[Attempt, Settlement]


class Settler:
    """Takes what has ended, and tells `settled` what became of it. A chain that goes on by itself, while there is
    nothing else to do, is followed: `follow` says whether we may, and `handed` is given its next job, claimed."""

    def __init__(
        self,
        app: Windlass,
        settled: Callable[[list[Ended], list[Refusal], bool], None],
        follow: Callable[[NewJob], bool],
        not_following: Callable[[NewJob], None],
        handed: Callable[[Job, UUID, float], None],
        name: str,
    ) -> None:
        self.app, self.settled, self.handed, self.name = app, settled, handed, name
        self.follow, self.not_following = follow, not_following
        self.waiting: list[Ended] = []
        self.under_way = 0
        self.full = False
        self._bytes = 0
        self._room = asyncio.Event()
        self._something = asyncio.Event()
        self._nothing = asyncio.Event()
        self._nothing.set()

    def add(self, attempt: Attempt, settlement: Settlement) -> None:
        if not self.waiting:
            self._something.set()
            self._nothing.clear()
        self.waiting.append((attempt, settlement))
        self._bytes += len(settlement.output or "")
        if len(self.waiting) >= ROWS_WAITING or self._bytes >= BYTES_WAITING:
            self.full = True
            self._room.clear()

    async def room(self) -> None:
        """When it is full no longer."""
        while self.full:
            await self._room.wait()

    async def drained(self) -> None:
        """When all that was added has been written."""
        await self._nothing.wait()

    async def run(self) -> None:
        while True:
            await self._something.wait()
            self._something.clear()
            while self.waiting:
                batch = self._next_batch()
                self.under_way = len(batch)
                try:
                    await self._write(batch)
                except BaseException:
                    self.waiting = batch + self.waiting  # to send it twice does no harm
                    self._bytes += sum(len(settlement.output or "") for _, settlement in batch)
                    self._something.set()
                    raise
                finally:
                    self.under_way = 0
            self._nothing.set()

    def _next_batch(self) -> list[Ended]:
        size = count = 0
        for _, settlement in self.waiting[:MOST_ROWS]:
            size += len(settlement.output or "") + len(settlement.error or "")
            if count and size > MOST_BYTES:
                break
            count += 1
        batch, self.waiting = self.waiting[:count], self.waiting[count:]
        self._bytes -= sum(len(settlement.output or "") for _, settlement in batch)
        if self.full and len(self.waiting) < ROWS_WAITING and self._bytes < BYTES_WAITING:
            self.full = False
            self._room.set()
        return batch

    async def _write(self, batch: list[Ended]) -> None:
        """Until it is written: the database may be gone for a while, and a settlement can be sent twice."""
        token, began = (uuid4() if len(batch) == 1 and self._may_follow(batch[0]) else None), time.monotonic()
        if token is not None and await self._hand_over(batch[0], token, began):
            return
        delay = 0.1
        while True:
            try:
                settlements = [settlement for _, settlement in batch]
                refusals = await self.app.arun_for_worker(lambda: self.app.store.settle(settlements))  # noqa: B023
            except Exception as error:
                if isinstance(error, WindlassError) and not _is_at_fault(batch, error):
                    log.warning("%d settlements wait for the store: %s", len(batch), error)
                elif len(batch) == 1:
                    batch = [_given_up(batch[0], error)]
                else:
                    for one in batch:  # one bad one does not hold up the others
                        await self._write([one])
                    return
            else:
                self.settled(batch, refusals, False)
                if token is not None:
                    await self._find_again(token, began)
                return
            await asyncio.sleep(delay * random.uniform(0.5, 1.5))
            delay = min(delay * 2, LONGEST_WAIT)

    # A chain that goes on by itself

    def _may_follow(self, ended: Ended) -> bool:
        following = ended[1].continues
        return following is not None and may_be_handed_over(following) and self.follow(following)

    async def _hand_over(self, ended: Ended, token: UUID, began: float) -> bool:
        """Whether that was all; where anything goes wrong it is written as any other is."""
        settlement = ended[1]
        try:
            done = await self.app.arun_for_worker(lambda: self.app.store.hand_over(settlement, token, self.name))
        except Exception as error:
            log.warning("job %s: what follows is claimed in another statement: %s", settlement.id, error)
            return False
        finally:
            if settlement.continues is not None:
                self.not_following(settlement.continues)
        self.settled([ended], done.refusals, done.job is not None)
        if done.job is not None:
            self.handed(done.job, token, began)
        return True

    async def _find_again(self, token: UUID, began: float) -> None:
        """The next job, if it was claimed before the answer was lost. If we cannot know, its lease will end."""
        with suppress(WindlassError):
            for job in await self.app.arun_for_worker(lambda: self.app.store.adopt(token)):
                self.handed(job, token, began)


def _is_at_fault(batch: list[Ended], error: WindlassError) -> bool:
    """Whether it is what one of these goes on with that cannot be stored, and never will be."""
    refused = isinstance(error, Conflict | InvalidInput | JobNotFound)
    return refused and any(settlement.continues is not None for _, settlement in batch)


def _given_up(ended: Ended, error: Exception) -> Ended:
    """The attempt ends as one that has raised this; what even then cannot be written is failed, and says only that."""
    attempt, settlement = ended
    job = attempt.job
    if settlement.continues is not None:
        return attempt, attempt.with_notes(decide(job, attempt.token, error, random=random.random))
    log.exception("job %s (%s): the store refuses to write how its attempt ended", job.id, job.type)
    described = encode_error(JobError("SettlementRefused", "the store could not write how this attempt ended"))
    return attempt, Settlement(id=settlement.id, token=settlement.token, state=FAILED, error=described)

"""The outbox: outcomes of attempts that wait to be written, many at a time.

A batch is sent when the one before has returned, with all outcomes that have come meanwhile. There is no timer: batches
are small when there is little to do, and large under load. The ledger bounds what waits here. When it is full, the
worker neither claims nor starts a job.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import NamedTuple
from uuid import UUID, uuid4

from ..app import Windlass
from ..attempt import Attempt
from ..errors import WindlassError
from ..job import Job
from ..logs import Log
from ..outcome import Settlement
from ..stores.store import Refusal
from .bell import Bell, Reason
from .cursor import Unanswered
from .events import Events
from .ledger import Ledger, Place
from .writer import Ended, Writer, first_of, size_of

log = Log("windlass.worker")

MOST_ROWS = 1000
MOST_BYTES = 8 * 1024 * 1024
BATCHES_WAITING = 2  # beside the one that is being written: always enough for the next
ROWS_WAITING, BYTES_WAITING = BATCHES_WAITING * MOST_ROWS, BATCHES_WAITING * MOST_BYTES


class NextJob(NamedTuple):
    """The next job of a chain, claimed for this worker in the statement that completed the job before it."""

    job: Job
    token: UUID
    began: float
    place: Place


Written = Callable[[list[Ended], list[Refusal], NextJob | None], None]
Lost = Callable[[Unanswered], None]


class Outbox:
    """`written` is called with each batch that the store has taken, and with the refusals in it; `lost` with the claim
    of a chain's next job whose answer was lost."""

    def __init__(
        self, app: Windlass, ledger: Ledger, bell: Bell, written: Written, lost: Lost, events: Events, name: str
    ) -> None:
        self.app, self.ledger, self.bell, self.events, self.name = app, ledger, bell, events, name
        self.written, self.lost = written, lost
        self.writer = Writer(self._send, self._renew, self._more, self._is_apart, self._was_apart)
        self.waiting: list[Ended] = []
        self._bytes = 0  # of those that wait
        self._in_hand: list[Ended] = []  # being written, and neither written yet nor set apart
        self._is_writing = False  # or looks for the next job of a chain
        self._room = asyncio.Event()
        self._something = asyncio.Event()
        self._nothing = asyncio.Event()
        self._nothing.set()

    @property
    def under_way(self) -> int:
        return len(self._in_hand) + len(self.writer.apart)

    @property
    def is_empty(self) -> bool:
        return not self.waiting and not self.under_way and not self._is_writing

    def add(self, attempt: Attempt, settlement: Settlement) -> None:
        if not self.waiting:
            self._something.set()
            self._nothing.clear()
        self.waiting.append((attempt, settlement))
        size = size_of(settlement)
        self._bytes += size
        self.ledger.add_unwritten(1, size)

    def _account(self, rows: int, bytes: int) -> None:
        was_full = self.ledger.is_full
        self.ledger.add_unwritten(rows, bytes)
        if was_full and not self.ledger.is_full:
            self._room.set()
            self.bell.ring(Reason.ROOM)

    async def room(self) -> None:
        """Until it is not full."""
        while self.ledger.is_full:
            self._room.clear()
            await self._room.wait()

    async def drained(self) -> None:
        """Until every outcome has been written."""
        await self._nothing.wait()

    async def run(self) -> None:
        while True:
            await self._something.wait()
            self._something.clear()
            while self.waiting:
                batch = self._in_hand = self._next_batch()
                self._is_writing = True
                try:
                    await self._write(batch)
                except BaseException:
                    self._put_back(self._in_hand)
                    raise
                finally:
                    self._in_hand, self._is_writing = [], False
            self._look_whether_all_is_done()

    def close(self) -> None:
        self.writer.close()

    def _put_back(self, batch: list[Ended]) -> None:
        """Outcomes that were cut short are sent again: if the store has taken one, that does no harm."""
        self.waiting = batch + self.waiting
        size = sum(size_of(settlement) for _, settlement in batch)
        self._bytes += size
        self._account(len(batch), size)
        self._something.set()
        self._nothing.clear()

    def _look_whether_all_is_done(self) -> None:
        if self.is_empty:
            self._nothing.set()

    def _next_batch(self) -> list[Ended]:
        batch, size = self.waiting, self._bytes
        if len(batch) > MOST_ROWS or size > MOST_BYTES:
            batch, size = first_of(batch, MOST_ROWS, MOST_BYTES)
        self.waiting = self.waiting[len(batch) :]
        self._bytes -= size
        self._account(-len(batch), -size)
        return batch

    # For the writer

    async def _send(self, batch: list[Ended]) -> None:
        settlements, began = [settlement for _, settlement in batch], time.monotonic()
        refusals = await self.app.arun_for_worker(lambda: self.app.store.settle(settlements))
        self._out_of_hand(batch)
        self._tell(batch, refusals, None, began)

    def _out_of_hand(self, batch: list[Ended]) -> None:
        """They are written, or wait apart: if the others are cut short, these are not sent again."""
        if batch is self._in_hand:
            self._in_hand = []
        elif self._in_hand:
            attempts = {attempt for attempt, _ in batch}  # a settlement may have been replaced
            self._in_hand = [one for one in self._in_hand if one[0] not in attempts]

    def _tell(self, batch: list[Ended], refusals: list[Refusal], next_job: NextJob | None, began: float) -> None:
        seconds = time.monotonic() - began
        try:
            self.written(batch, refusals, next_job)
            if batch and self.app.hooks:
                self.events.settled(len(batch), seconds, refused=len(refusals))
        except Exception:  # it is written, and must not be written again
            log.exception("%d outcomes were written, but what follows from them failed", len(batch))

    async def _renew(self, batch: list[Ended]) -> set[UUID]:
        """The jobs of the batch that another transaction has locked. A renewal of their leases tells, and waits for no
        lock."""
        leases = [attempt.lease for attempt, _ in batch]
        renewals = await self.app.arun_for_worker(lambda: self.app.store.renew(leases))
        return {renewal.id for renewal in renewals if renewal.locked}

    def _more(self) -> list[Ended]:
        more = self._next_batch() if self.waiting else []
        self._in_hand = self._in_hand + more
        return more

    def _is_apart(self, one: Ended) -> None:
        self._out_of_hand([one])
        self._account(1, 0)

    def _was_apart(self, one: Ended, cut_short: bool) -> None:
        self._account(-1, 0)
        if cut_short:
            self._put_back([one])
        self._look_whether_all_is_done()

    # Continuing a chain

    async def _write(self, batch: list[Ended]) -> None:
        place = _next_place(batch)
        if place is None:
            await self.writer.write(batch)
            return
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
        """Complete a job and claim the next one of its chain, in one statement: whether that was claimed."""
        settlement = ended[1]
        done = await self.app.arun_for_worker(lambda: self.app.store.hand_over(settlement, token, self.name))
        next_job = None if done.job is None else NextJob(done.job, token, began, place)
        self._out_of_hand([ended])
        self._tell([ended], done.refusals, next_job, began)
        return next_job is not None

    async def _write_and_adopt_next(self, batch: list[Ended], token: UUID, began: float, place: Place) -> bool:
        """Whether the next job had been claimed before the answer was lost."""
        try:
            await self.writer.write(batch)
            jobs = await self.app.arun_for_worker(lambda: self.app.store.adopt(token))
        except BaseException as error:
            self._lose_next(batch[0], token, began)
            if isinstance(error, WindlassError):
                return False
            raise
        for job in jobs:
            self._tell([], [], NextJob(job, token, began, place), began)
        return bool(jobs)

    def _lose_next(self, ended: Ended, token: UUID, began: float) -> None:
        if (next_job := ended[1].continues) is not None:
            self.lost(Unanswered(token, next_job.queue, began))


def _next_place(batch: list[Ended]) -> Place | None:
    """Only a batch of one continues its chain. Under load, the next jobs queue up behind others."""
    if len(batch) == 1:
        attempt = batch[0][0]
        place, attempt.next_place = attempt.next_place, None
        return place
    for attempt, _ in batch:
        if attempt.next_place is not None:
            attempt.next_place.release()
            attempt.next_place = None
    return None

"""The outbox: outcomes of attempts that wait to be written, many at a time.

A batch is sent when the one before has returned, with all outcomes that have come meanwhile. There is no timer: batches
are small when there is little to do, and large under load. The ledger bounds what waits here. When it is full, the
worker neither claims nor starts a job.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from uuid import UUID

from ..app import Windlass
from ..attempt import Attempt
from ..logs import Log
from ..outcome import Settlement
from ..stores.store import Refusal
from .bell import Bell, Reason
from .events import Events
from .hand_over import HandOver, Lost, NextJob
from .ledger import Ledger, Place
from .unwritten import Ended, Unwritten

log = Log("windlass.worker")

MOST_ROWS = 1000
MOST_BYTES = 8 * 1024 * 1024
BATCHES_WAITING = 2  # beside the one that is being written: always enough for the next
ROWS_WAITING, BYTES_WAITING = BATCHES_WAITING * MOST_ROWS, BATCHES_WAITING * MOST_BYTES


Written = Callable[[list[Ended], list[Refusal], NextJob | None], None]


class Outbox:
    """`written` is called with each batch that the store has taken, and with the refusals in it; `lost` with the claim
    of a chain's next job whose answer was lost."""

    def __init__(
        self, app: Windlass, ledger: Ledger, bell: Bell, written: Written, lost: Lost, events: Events, name: str
    ) -> None:
        self.app, self.ledger, self.bell, self.events, self.name = app, ledger, bell, events, name
        self.written = written
        self.unwritten = Unwritten(self._send, self._renew, self._more, self._is_apart, self._was_apart)
        self.hand_over = HandOver(app, name, self.write, self.taken, lost)
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
        return len(self._in_hand) + len(self.unwritten.apart)

    @property
    def is_empty(self) -> bool:
        return not self.waiting and not self.under_way and not self._is_writing

    def add(self, attempt: Attempt, settlement: Settlement) -> None:
        if not self.waiting:
            self._something.set()
            self._nothing.clear()
        self.waiting.append((attempt, settlement))
        size = _size_of(settlement)
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
        self.unwritten.close()

    def _put_back(self, batch: list[Ended]) -> None:
        """Outcomes that were cut short are sent again: if the store has taken one, that does no harm."""
        self.waiting = batch + self.waiting
        size = sum(_size_of(settlement) for _, settlement in batch)
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
            batch, size = _first_of(batch, MOST_ROWS, MOST_BYTES)
        self.waiting = self.waiting[len(batch) :]
        self._bytes -= size
        self._account(-len(batch), -size)
        return batch

    async def _write(self, batch: list[Ended]) -> None:
        place = _take_next_place(batch)
        if place is not None:
            await self.hand_over.write(batch, place)
        else:
            await self.write(batch)

    async def write(self, batch: list[Ended]) -> None:
        """Until the store has taken all of them."""
        try:
            await self._send(batch)
        except Exception as error:
            await self.unwritten.send_again(batch, error)

    async def _send(self, batch: list[Ended]) -> None:
        settlements, began = [settlement for _, settlement in batch], time.monotonic()
        refusals = await self.app.arun_for_worker(lambda: self.app.store.settle(settlements))
        self.taken(batch, refusals, None, began)

    def _out_of_hand(self, batch: list[Ended]) -> None:
        """They are written, or wait apart: if the others are cut short, these are not sent again."""
        if batch is self._in_hand:
            self._in_hand = []
        elif self._in_hand:
            attempts = {attempt for attempt, _ in batch}  # a settlement may have been replaced
            self._in_hand = [one for one in self._in_hand if one[0] not in attempts]

    def taken(self, batch: list[Ended], refusals: list[Refusal], next_job: NextJob | None, began: float) -> None:
        """The store has taken them, in a statement that began then."""
        seconds = time.monotonic() - began
        self._out_of_hand(batch)
        try:
            self.written(batch, refusals, next_job)
            if batch and self.app.hooks:
                self.events.settled(len(batch), seconds, refused=len(refusals))
        except Exception:  # it is written, and must not be written again
            log.exception("%d outcomes were written, but what follows from them failed", len(batch))

    # For outcomes that the store did not take

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


def _size_of(settlement: Settlement) -> int:
    """About how many bytes of a statement it takes."""
    size = len(settlement.output or "")
    if settlement.error is not None or settlement.attempts is not None:
        size += len(settlement.error or "") + len(settlement.attempts or "")
    if settlement.progress is not None:
        size += len(settlement.progress)
    if settlement.continues is not None:
        size += len(settlement.continues.input) + len(settlement.continues.labels or "")
    return size


def _first_of(waiting: list[Ended], most_rows: int, most_bytes: int) -> tuple[list[Ended], int]:
    """The first of them, for one batch, and how many bytes they are."""
    size = count = 0
    for _, settlement in waiting[:most_rows]:
        own = _size_of(settlement)
        if count and size + own > most_bytes:
            break
        size += own
        count += 1
    return waiting[:count], size


def _take_next_place(batch: list[Ended]) -> Place | None:
    """The place that was taken for the next job. Only a batch of one continues its chain. Under load, the next jobs
    queue up behind others."""
    if len(batch) == 1:
        attempt = batch[0][0]
        place, attempt.next_place = attempt.next_place, None
        return place
    for attempt, _ in batch:
        if attempt.next_place is not None:
            attempt.next_place.release()
            attempt.next_place = None
    return None

"""Settlements, many at a time: one goes out when the one before has returned, with all that has gathered meanwhile.

No timer: small batches when there is little to do, large ones under load. Where handlers are quicker than the store,
what waits here is bounded: the settler is full at a few batches, and until that has changed no job is claimed or
started.

A settlement waits until the store takes it, however long that cannot be reached, or refuses to write at all. Only one
that is refused for its own content is written otherwise: see `refused.py`. One that never succeeds where others do
waits apart, and holds up none of them.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from uuid import UUID, uuid4

from ..app import Windlass
from ..attempt import Attempt
from ..errors import WindlassError
from ..job import Job, NewJob
from ..logs import Log
from ..operation import Interrupted, Transient, Unwilling
from ..outcome import Settlement
from ..stores.store import Refusal, may_be_handed_over
from .refused import is_refused_for_its_content, settle_instead

log = Log("windlass.worker")

MOST_ROWS = 1000
MOST_BYTES = 8 * 1024 * 1024
BATCHES_WAITING = 2  # beside the one that is on its way: always enough for the next
ROWS_WAITING, BYTES_WAITING = BATCHES_WAITING * MOST_ROWS, BATCHES_WAITING * MOST_BYTES
LONGEST_WAIT = 15.0
TRIES_TOGETHER = 3  # of a batch, before we look whether it is one of them that cannot be written
LONGEST_APART = 2.0  # seconds between tries of one that holds up no other
FEW = 2  # of these at one time: each may wait for a lock, on a connection that others need
PROBES = 3  # that fail in a row show that the store takes none at present

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
        self.full = False
        self._in_hand: list[Ended] = []  # on their way, all at once
        self._apart: dict[asyncio.Task[None], Ended] = {}
        self._bytes = 0
        self._few = asyncio.Semaphore(FEW)
        self._room = asyncio.Event()
        self._something = asyncio.Event()
        self._nothing = asyncio.Event()
        self._nothing.set()

    @property
    def under_way(self) -> int:
        return len(self._in_hand) + len(self._apart)

    def add(self, attempt: Attempt, settlement: Settlement) -> None:
        if not self.waiting:
            self._something.set()
            self._nothing.clear()
        self.waiting.append((attempt, settlement))
        self._bytes += size_of(settlement)
        if self._is_full():
            self.full = True
            self._room.clear()

    def _is_full(self) -> bool:
        return len(self.waiting) + len(self._apart) >= ROWS_WAITING or self._bytes >= BYTES_WAITING

    def _look_for_room(self) -> None:
        if self.full and not self._is_full():
            self.full = False
            self._room.set()

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
                self._in_hand = batch
                try:
                    await self._write(batch)
                except BaseException:
                    self._put_back(self._in_hand)
                    raise
                finally:
                    self._in_hand = []
            self._look_whether_all_is_done()

    def close(self) -> None:
        for task in list(self._apart):
            task.cancel()

    def _put_back(self, batch: list[Ended]) -> None:
        """What was cut short is written again: to send it twice does no harm."""
        self.waiting = batch + self.waiting
        self._bytes += sum(size_of(settlement) for _, settlement in batch)
        self._something.set()
        self._nothing.clear()

    def _look_whether_all_is_done(self) -> None:
        if not self.waiting and not self.under_way:
            self._nothing.set()

    def _next_batch(self) -> list[Ended]:
        size = count = 0
        for _, settlement in self.waiting[:MOST_ROWS]:
            own = size_of(settlement)
            if count and size + own > MOST_BYTES:
                break
            size += own
            count += 1
        batch, self.waiting = self.waiting[:count], self.waiting[count:]
        self._bytes -= size
        self._look_for_room()
        return batch

    async def _write(self, batch: list[Ended]) -> None:
        """Until it is written: the database may be gone for a while, and a settlement can be sent twice."""
        token, began = (uuid4() if len(batch) == 1 and self._may_follow(batch[0]) else None), time.monotonic()
        if token is not None and await self._hand_over(batch[0], token, began):
            return
        await self._write_all(batch)
        if token is not None:
            await self._find_again(token, began)

    async def _write_all(
        self, batch: list[Ended], instead: Iterator[Settlement] | None = None, *, apart: bool = False
    ) -> None:
        """`instead`: what is written of the one in this batch if it is refused for its content once more. `apart`: it
        holds up no other."""
        delay, tries = 0.1, 0
        while True:
            try:
                if apart:
                    async with self._few:
                        await self._send(batch)
                else:
                    await self._send(batch)
                return
            except Exception as error:
                if is_refused_for_its_content([settlement for _, settlement in batch], error):
                    if len(batch) > 1:
                        await self._write_all(batch[: len(batch) // 2])
                        await self._write_all(batch[len(batch) // 2 :])
                        return
                    attempt, settlement = batch[0]
                    instead = instead or settle_instead(attempt, settlement, error)
                    if (other := next(instead, None)) is not None:
                        batch = [(attempt, other)]
                        continue
                    if not apart:
                        self._set_apart(batch[0])
                        return
                tries += 1
                log.warning("%d settlements wait for the store, try %d: %s", len(batch), tries, error)
                if not apart and isinstance(error, Unwilling | Transient | Interrupted):
                    batch, some_are_locked = await self._set_locked_apart(batch)
                    if not batch:
                        return
                    if some_are_locked:
                        continue
            if not apart and tries >= TRIES_TOGETHER:
                batch = await self._write_apart(self._with_others(batch))
                if not batch:
                    return
            await asyncio.sleep(delay * random.uniform(0.5, 1.5))
            delay = min(delay * 2, LONGEST_APART if apart else LONGEST_WAIT)

    async def _set_locked_apart(self, batch: list[Ended]) -> tuple[list[Ended], bool]:
        """Jobs that another transaction has locked wait apart; what is left, and whether that is less. Renewing their
        leases tells which they are, and waits for none of them."""
        try:
            leases = [attempt.lease for attempt, _ in batch]
            renewals = await self.app.arun_for_worker(lambda: self.app.store.renew(leases))
        except Exception as error:
            log.debug("the store does not say which jobs are locked: %s", error)
            return batch, False
        locked = {renewal.id for renewal in renewals if renewal.locked}
        for one in batch:
            if one[1].id in locked:
                self._set_apart(one)
        return [one for one in batch if one[1].id not in locked], bool(locked)

    async def _send(self, batch: list[Ended]) -> None:
        settlements = [settlement for _, settlement in batch]
        refusals = await self.app.arun_for_worker(lambda: self.app.store.settle(settlements))
        try:
            self.settled(batch, refusals, False)
        except Exception:  # it is written, and is not to be written again
            log.exception("what follows from %d settlements could not be done", len(batch))

    def _with_others(self, batch: list[Ended]) -> list[Ended]:
        """One alone does not tell whether it is the store that takes none."""
        if len(batch) > 1 or not self.waiting:
            return batch
        more = self._next_batch()
        self._in_hand = self._in_hand + more
        return batch + more

    async def _write_apart(self, batch: list[Ended]) -> list[Ended]:
        """One by one, in any order: what is left, where the store takes none of them. Where it takes some, those that
        it does not take go on waiting apart, so that they hold up nobody."""
        order = random.sample(batch, len(batch))
        failed: list[Ended] = []
        for index, one in enumerate(order):
            try:
                await self._send([one])
            except Exception as error:
                log.debug("job %s: its settlement could not be written alone either: %s", one[1].id, error)
                failed.append(one)
                if len(failed) == index + 1 == PROBES:
                    return batch
        if len(failed) == len(batch):
            return batch
        for one in failed:
            self._set_apart(one)
        return []

    def _set_apart(self, one: Ended) -> None:
        task = asyncio.create_task(self._write_all([one], apart=True), name="windlass settlement")
        self._apart[task] = one
        task.add_done_callback(self._written_apart)

    def _written_apart(self, task: asyncio.Task[None]) -> None:
        ended = self._apart.pop(task)
        if task.cancelled() or task.exception() is not None:
            self._put_back([ended])
        self._look_for_room()
        self._look_whether_all_is_done()

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
        try:
            self.settled([ended], done.refusals, done.job is not None)
        except Exception:  # it is written, and is not to be written again
            log.exception("what follows from a settlement could not be done")
        if done.job is not None:
            self.handed(done.job, token, began)
        return True

    async def _find_again(self, token: UUID, began: float) -> None:
        """The next job, if it was claimed before the answer was lost. If we cannot know, its lease will end."""
        with suppress(WindlassError):
            for job in await self.app.arun_for_worker(lambda: self.app.store.adopt(token)):
                self.handed(job, token, began)


def size_of(settlement: Settlement) -> int:
    """About how many bytes of a statement it takes."""
    size = len(settlement.output or "")
    if settlement.error is not None or settlement.attempts is not None:
        size += len(settlement.error or "") + len(settlement.attempts or "")
    if settlement.progress is not None:
        size += len(settlement.progress)
    if settlement.continues is not None:
        size += len(settlement.continues.input) + len(settlement.continues.labels or "")
    return size

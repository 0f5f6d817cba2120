"""Outcomes that the store did not take at the first try: they are sent again until it does.

An outcome waits until the store takes it, however long the store cannot be reached or refuses to write at all. Only one
that is refused for its own content is written differently: see `refused.py`. One that never succeeds while others do
waits apart, and holds up none of them.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator
from contextlib import nullcontext
from uuid import UUID

from ..attempt import Attempt
from ..duration import Delays
from ..logs import Log
from ..operation import Interrupted, Transient, Unwilling
from ..outcome import Settlement
from .refused import is_refused_for_its_content, settle_instead

log = Log("windlass.worker")

FIRST_DELAY, LONGEST_DELAY = 0.1, 15.0  # seconds between tries
LONGEST_APART = 2.0  # the same for an outcome that holds up no other
TRIES_TOGETHER = 3  # of a batch, before it is tried whether one of them cannot be written
FEW = 2  # outcomes that are tried apart at one time: each may wait for a lock, on a connection that others need
PROBES = 3  # that fail in a row show that the store takes no write at present

Ended = tuple[Attempt, Settlement]


class Unwritten:
    """`send` writes a batch or raises. `locked` says which of its jobs another transaction has locked. `more` gives the
    next outcomes that wait. `is_apart` is called when an outcome begins to wait apart, `was_apart` when it no longer
    does, with whether it was cut short."""

    def __init__(
        self,
        send: Callable[[list[Ended]], Awaitable[None]],
        locked: Callable[[list[Ended]], Awaitable[set[UUID]]],
        more: Callable[[], list[Ended]],
        is_apart: Callable[[Ended], None],
        was_apart: Callable[[Ended, bool], None],
    ) -> None:
        self.send, self.locked, self.more = send, locked, more
        self.is_apart, self.was_apart = is_apart, was_apart
        self.apart: dict[asyncio.Task[None], Ended] = {}
        self._few = asyncio.Semaphore(FEW)

    def close(self) -> None:
        for task in list(self.apart):
            task.cancel()

    async def send_again(self, batch: list[Ended], error: Exception | None, *, apart: bool = False) -> None:
        """Until it is written. `error`: of the first try, if there was one."""
        delays, tries = Delays(FIRST_DELAY, LONGEST_APART if apart else LONGEST_DELAY, jitter=(0.5, 1.5)), 0
        instead: Iterator[Settlement] | None = None
        has_others = apart  # none comes to one that waits apart
        while True:
            if error is None and (error := await self._try(batch, apart)) is None:
                return
            reason, error = error, None
            if is_refused_for_its_content([settlement for _, settlement in batch], reason):
                if len(batch) > 1:
                    await self.send_again(batch[: len(batch) // 2], None)
                    await self.send_again(batch[len(batch) // 2 :], None)
                    return
                attempt, settlement = batch[0]
                instead = instead or settle_instead(attempt, settlement, reason)
                if (other := next(instead, None)) is not None:
                    batch = [(attempt, other)]
                    continue
                if not apart:
                    self._set_apart(batch[0])
                    return
            tries += 1
            log.warning("%d settlements wait for the store, try %d: %s", len(batch), tries, reason)
            if not apart and isinstance(reason, Unwilling | Transient | Interrupted):
                batch, some_are_locked = await self._set_locked_apart(batch)
                if not batch:
                    return
                if some_are_locked:
                    continue
            if not apart and tries >= TRIES_TOGETHER:
                others = [] if has_others else self.more()
                has_others = has_others or bool(others)
                batch = await self._send_one_by_one(batch, others)
                if not batch:
                    return
            await asyncio.sleep(next(delays))

    async def _try(self, batch: list[Ended], apart: bool) -> Exception | None:
        try:
            async with self._few if apart else nullcontext():
                await self.send(batch)
        except Exception as error:
            return error
        return None

    async def _set_locked_apart(self, batch: list[Ended]) -> tuple[list[Ended], bool]:
        """The outcomes that are left, and whether some were locked."""
        try:
            locked = await self.locked(batch)
        except Exception as error:
            log.debug("the store does not say which jobs are locked: %s", error)
            return batch, False
        for one in batch:
            if one[1].id in locked:
                self._set_apart(one)
        return [one for one in batch if one[1].id not in locked], bool(locked)

    async def _send_one_by_one(self, batch: list[Ended], others: list[Ended]) -> list[Ended]:
        """In random order, the others first: perhaps none of the batch can be written. If the store takes some, the
        rest waits apart. If it takes none, all of them are left."""
        failed: list[Ended] = []
        in_order = random.sample(others, len(others)) + random.sample(batch, len(batch))
        batch = batch + others
        for index, one in enumerate(in_order):
            try:
                await self.send([one])
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
        task = asyncio.create_task(self.send_again([one], None, apart=True), name="windlass settlement")
        self.apart[task] = one
        self.is_apart(one)
        task.add_done_callback(self._written_apart)

    def _written_apart(self, task: asyncio.Task[None]) -> None:
        one = self.apart.pop(task)
        self.was_apart(one, task.cancelled() or task.exception() is not None)

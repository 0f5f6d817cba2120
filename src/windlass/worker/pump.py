"""The pump: take the reasons to look again, act on the plan, wait."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterable

from ..app import Windlass
from ..attempt import Attempt
from ..errors import WindlassError
from ..job import NewJob
from ..logs import Log
from .bell import ALWAYS, Bell, Reason, Reasons
from .buffer import LONGEST_LOOK, Buffer
from .claimer import Claimer
from .ledger import Ledger, Place
from .turn import CHAIN_SECONDS, Rest, Turn

log = Log("windlass.worker")

FIRST_DELAY, LONGEST_DELAY = 0.1, 15.0  # seconds between turns while the store cannot be reached


class Pump:
    def __init__(
        self, app: Windlass, claimer: Claimer, ledger: Ledger, bell: Bell, buffer: Buffer, *,
        give_back: Callable[[list[Attempt]], None], poll_seconds: float, until_idle: bool,
    ) -> None:  # fmt: skip
        self.app, self.claimer, self.ledger, self.bell, self.buffer = app, claimer, ledger, bell, buffer
        self.give_back = give_back
        self.turn = Turn(poll_seconds, claimer.all_queues, until_idle)
        self.ledger.slots_served_at = time.monotonic()
        self.stopping = False

    async def run(self) -> None:
        delay = FIRST_DELAY
        while not self.stopping:
            reasons = self.bell.take()
            self.give_back(self.buffer.stale())
            try:
                rest = await self._act(reasons)
                delay = FIRST_DELAY
            except Exception as error:  # whatever the store answers with: the next turn may go better
                log.warning(
                    "claiming failed, and is tried again: %s", error, extra={"worker": self.claimer.name},
                    exc_info=not isinstance(error, WindlassError),
                )  # fmt: skip
                self.bell.ring(Reason.LOOK)  # the reasons of this turn still hold
                await asyncio.sleep(delay * random.uniform(0.5, 1.5))
                delay = min(delay * 2, LONGEST_DELAY)
                continue
            must_look = len(self.buffer) or self.claimer.unanswered
            await self.bell.wait(min(rest.seconds, LONGEST_LOOK) if must_look else rest.seconds, rest.also)

    async def _act(self, reasons: Reasons) -> Rest:
        self.claimer.wake(reasons)
        plan = self.turn.plan(reasons, self.ledger, time.monotonic(), frozenset(self.claimer.cursors))
        first = await self._claim_from(plan.first)
        if first and plan.only_first:
            return Rest(CHAIN_SECONDS)
        turn = self.turn = self.turn.begin(plan, reasons, self.ledger)
        if self.claimer.unanswered:
            self.buffer.put(await self.claimer.adopt())
        if plan.admit:
            turn = await self._admit(turn)
        if plan.recheck_stuck and await self.claimer.find_stuck(again=True):
            turn = turn.checked_stuck(time.monotonic())
        queues = list(self.claimer.cursors)
        if plan.find_queues:
            queues = await self.claimer.find_queues()
            turn = turn.found_queues(bool(queues), time.monotonic())
        room = first + self.ledger.room()
        if plan.keep_slot:
            self.buffer.keep_slots(1)
        shift = turn.number % max(1, len(queues))
        jobs = first + await self._claim_from([*queues[shift:], *queues[:shift]], beside=plan.first)
        if self.ledger.kept_slots:
            self.buffer.hand([])  # no queue had room for more: these slots take prefetched jobs again
        turn = turn.claimed(room, jobs)
        if turn.must_ask_when_due:
            turn = await self._ask_when_due(turn)
        self.turn = turn
        return turn.rest()

    async def _claim_from(self, queues: Iterable[str], beside: Iterable[str] = ()) -> int:
        """One claim from each queue in turn, save those of which this turn has seen the end."""
        jobs = 0
        for queue in queues:
            if queue not in beside and self.claimer.cursor(queue).is_worth_a_claim():
                jobs += await self._claim(queue)
        return jobs

    async def _claim(self, queue: str) -> int:
        """For free slots any job, also a last attempt. Then jobs that may wait in the buffer."""
        jobs = 0
        wanted = self.ledger.room_for_slots(queue)
        if wanted > 0 and not self.stopping:
            attempts = await self.claimer.claim(queue, wanted, prefetch=False)
            self.buffer.hand(attempts)
            jobs = len(attempts)
        ahead = self.ledger.room_ahead(queue)
        if jobs >= wanted and ahead > 0 and not self.stopping:
            attempts = await self.claimer.claim(queue, ahead, prefetch=True)
            self.buffer.put(attempts)
            jobs += len(attempts)
        return jobs

    async def _admit(self, turn: Turn) -> Turn:
        """Jobs with blockers or an order key, also those that were enqueued in your transactions."""
        blocked = True
        try:
            while (admitted := await self.app.arun_for_worker(self.app._admit)).jobs:
                self.claimer.wake(Reasons(hinted=frozenset(admitted.queues)))
            blocked = admitted.left > 0
        except Exception as error:  # jobs that have not arrived block no others
            log.warning("arriving jobs could not be admitted, which is tried again: %s", error)
        return turn.admitted(blocked, time.monotonic())

    async def _ask_when_due(self, turn: Turn) -> Turn:
        due_in = await self.claimer.next_due()
        if turn.may_check_stuck(due_in, time.monotonic()):
            stuck = await self.claimer.find_stuck(again=False)
            turn = turn.checked_stuck(time.monotonic())
            due_in = await self.claimer.next_due() if stuck else due_in
        return turn.asked_when_due(due_in, time.monotonic())

    # What others ask

    @property
    def nothing_left(self) -> bool:
        """A look has found nothing, after all attempts that have ended."""
        return self.turn.idle and not self.bell.has(Reason.ENDED) and not self.claimer.unanswered

    @property
    def seems_locked(self) -> bool:
        return self.turn.seems_locked(time.monotonic())

    def place_for(self, job: NewJob) -> Place | None:
        """A place for the next job of a chain, if this worker may run it at once: as far as it knows no other job
        waits, so none is passed over. A last attempt is not buffered."""
        if self.stopping or not self.turn.took_all or self.bell.has(ALWAYS) or job.max_attempts == 1:
            return None
        if job.queue not in self.claimer.cursors or job.type not in self.app.tasks or not self.ledger.free_slots:
            return None
        return self.ledger.take(job.queue, 1)[0] if self.ledger.room_for_slots(job.queue) > 0 else None

    def stop(self) -> None:
        self.stopping = True
        self.bell.ring(Reason.STOP)

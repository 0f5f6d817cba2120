"""The pump: take the reasons to look again, act on the plan, wait."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from ..attempt import Attempt
from ..duration import Delays
from ..errors import WindlassError
from ..logs import Log
from .bell import Bell, Reason, Reasons
from .buffer import LONGEST_LOOK
from .claimer import Claimer
from .queues import QueueLooks
from .turn import CHAIN_SECONDS, LAST_ATTEMPTS_SECONDS, Rest, Turn

log = Log("windlass.worker")

FIRST_DELAY, LONGEST_DELAY = 0.1, 15.0  # seconds between turns while the store cannot be reached


class Pump:
    def __init__(
        self, claimer: Claimer, bell: Bell, give_back: Callable[[list[Attempt]], None], *,
        poll_seconds: float, until_idle: bool,
    ) -> None:  # fmt: skip
        self.claimer, self.bell, self.give_back = claimer, bell, give_back
        self.ledger, self.buffer, self.looks = claimer.ledger, claimer.buffer, QueueLooks(claimer)
        self.turn = Turn(poll_seconds, claimer.all_queues, until_idle)
        self.ledger.look_for_last_at = time.monotonic() + LAST_ATTEMPTS_SECONDS

    async def run(self) -> None:
        delays = Delays(FIRST_DELAY, LONGEST_DELAY, jitter=(0.5, 1.5))
        while not self.claimer.closed:
            reasons = self.bell.take()
            self.give_back(self.buffer.stale())
            try:
                rest = await self._act(reasons)
                delays.reset()
            except Exception as error:  # any error of the store: the next turn may succeed
                log.warning(
                    "claiming failed, and is tried again: %s", error, extra={"worker": self.claimer.name},
                    exc_info=not isinstance(error, WindlassError),
                )  # fmt: skip
                self.bell.ring(Reason.LOOK)  # the reasons of this turn still hold
                self.buffer.hand([])  # kept slots take prefetched jobs meanwhile
                await asyncio.sleep(next(delays))
                continue
            must_look = len(self.buffer) or self.claimer.unanswered
            await self.bell.wait(min(rest.seconds, LONGEST_LOOK) if must_look else rest.seconds, rest.also)

    async def _act(self, reasons: Reasons) -> Rest:
        self.claimer.wake(reasons)
        plan = self.turn.plan(reasons, self.ledger, time.monotonic(), self.claimer.short_queues)
        first = await self.claimer.fill(plan.first)
        if first and plan.only_first:
            return Rest(CHAIN_SECONDS)
        turn = self.turn = self.turn.begin(plan, reasons, self.ledger, time.monotonic())
        self.claimer.nothing_waits = False
        if self.claimer.unanswered:
            await self.claimer.adopt(self.buffer.put)
        if plan.admit:
            turn = turn.admitted(await self.looks.admit(), time.monotonic())
        if plan.recheck_stuck and await self.looks.find_stuck(again=True):
            turn = turn.checked_stuck(time.monotonic())
        queues = list(self.claimer.cursors)
        if plan.find_queues:
            queues = await self.looks.find_queues()
            turn = turn.found_queues(bool(queues), time.monotonic())
        room = first + self.ledger.room()
        if plan.keep_slot:
            self.claimer.kept.keep(time.monotonic())
        jobs, saw_all = await self.claimer.fill_round(queues, done=plan.first)
        self.claimer.kept.end_round(time.monotonic())
        self.claimer.kept.keep_more(time.monotonic())
        turn = turn.claimed(room, first + jobs, saw_all)
        if turn.must_ask_when_due:
            turn = await self._ask_when_due(turn)
        self.turn = turn
        self.claimer.nothing_waits = turn.idle
        return turn.rest()

    async def _ask_when_due(self, turn: Turn) -> Turn:
        due_in = await self.looks.next_due()
        if turn.may_check_stuck(due_in, time.monotonic()):
            stuck = await self.looks.find_stuck(again=False)
            turn = turn.checked_stuck(time.monotonic())
            due_in = await self.looks.next_due() if stuck else due_in
        return turn.asked_when_due(due_in, time.monotonic())

    # What others ask

    @property
    def nothing_left(self) -> bool:
        """A look has found nothing, after all attempts that have ended."""
        return self.turn.idle and not self.bell.has(Reason.ENDED) and not self.claimer.unanswered

    @property
    def seems_locked(self) -> bool:
        return self.turn.seems_locked(time.monotonic())

    def stop(self) -> None:
        self.claimer.closed = True
        self.bell.ring(Reason.STOP)

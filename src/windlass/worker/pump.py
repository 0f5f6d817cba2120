"""The pump: claim what will soon run, wait until there is reason to claim again."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar
from uuid import UUID, uuid4

from ..app import Windlass
from ..attempt import Attempt
from ..errors import WindlassError
from ..job import Job, NewJob
from ..logs import Log
from ..stores.store import ClaimRequest
from ..stores.wakeup import Hint
from .buffer import LONGEST_LOOK, Buffer
from .claiming import Served, Unanswered
from .leases import Leases

log = Log("windlass.worker")

T = TypeVar("T")

MOST_AT_ONCE = 500
LONGEST_WAIT = 15.0
LAST_ATTEMPTS_SECONDS = 0.25  # after which a slot is kept for last attempts, however busy all slots are
ADMIT_SECONDS = 0.1  # between looks for those that wait to be let in, while there is other work
ADMIT_HELD_UP_SECONDS = 0.01, 0.5  # the same while a lock of another transaction keeps some out: first, and at most
CHAIN_SECONDS = 0.01  # that a chain gets to go on, before we look round again
VAIN_SECONDS = 0.001, 0.25  # between looks at a job that is due and cannot be had: at first, and at the most
LOCKED_SECONDS = 1.0  # that a job may be locked by somebody before we take it for one that is not for us
LOOK_SECONDS = 0.25  # between looks for jobs of a claim without an answer, when the worker ends
QUEUES_SECONDS = 1.0  # between looks for queues that are new, while there is work in those that are known


class Pump:
    def __init__(
        self, app: Windlass, buffer: Buffer, leases: Leases, *, name: str, queues: Mapping[str, int | None] | None,
        poll_seconds: float, may_claim: Callable[[], int], held_up: Callable[[], bool],
        give_back: Callable[[list[Attempt]], None],
    ) -> None:  # fmt: skip
        self.app, self.buffer, self.leases, self.name = app, buffer, leases, name
        self.poll_seconds, self.may_claim, self.held_up, self.give_back = poll_seconds, may_claim, held_up, give_back
        self.all_queues = queues is None
        self.served = {queue: Served(queue, limit) for queue, limit in (queues or {}).items()}
        self.limited = any(served.limit is not None for served in self.served.values())
        self.stopping = False
        self.idle = False  # the last round found nothing
        self.quiet = False  # all slots were free when it began
        self._changes = self._looked = 0
        self._told = self._deserted = self._nothing_ahead = False
        self._sated = False  # the last round took all that it found
        self._admit_pause = ADMIT_HELD_UP_SECONDS[0]
        self._held_up = False  # some jobs that arrived could not be admitted yet
        self._in_round, self._following = False, 0
        self._urgent: set[str] = set()
        self._admission_put_off = False
        self._woken = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._turn = 0
        self._look_again = self._admit_at = 0.0
        self._rest_at = self._wake_at = 0.0  # when it is next asked which queues may rest, and which must no longer
        self._vain, self._vain_since = VAIN_SECONDS[0], float("inf")
        self._last_attempts_at = time.monotonic()
        self._unanswered: list[Unanswered] = []

    async def run(self) -> None:
        delay = 0.1
        while not self.stopping:
            self._told = self._woken.is_set()
            self._woken.clear()
            self.buffer.room_made.clear()
            self.give_back(self.buffer.stale(held_up=self.held_up()))
            try:
                followed = await self._alone(self._follow_chains()) if self._urgent else 0
                if followed:
                    await self.rest(CHAIN_SECONDS)
                    continue
                before, quiet = self._changes, self.buffer.free >= self.buffer.slots
                room, claimed = await self._alone(self.round())
                self._sated = claimed < room
                idle = room > 0 and claimed == 0
                due = await self.next_due() if idle else (0.0, False)
                if self._admission_put_off:  # what we were woken for may be on its way in
                    due = min(due[0], ADMIT_SECONDS), due[1]
                self.idle, self.quiet, self._looked = idle, quiet, before
                if idle:
                    self._look_again = 0.0
                    self._admit_at = self._admit_at if self._held_up else 0.0
                    await self.rest(*due)
                elif room <= 0:
                    await self.rest(self.poll_seconds, or_room=True)
                else:
                    self._vain, self._vain_since = VAIN_SECONDS[0], float("inf")
                delay = 0.1
            except Exception as error:  # whatever the store answers with: the next round may go better
                log.warning(
                    "claiming failed, and is tried again: %s", error, extra={"worker": self.name},
                    exc_info=not isinstance(error, WindlassError),
                )  # fmt: skip
                await asyncio.sleep(delay * random.uniform(0.5, 1.5))
                delay = min(delay * 2, LONGEST_WAIT)

    async def _alone(self, claiming: Awaitable[T]) -> T:
        """While we claim, nobody else does: what is free must not be given away twice."""
        self._in_round = True
        try:
            return await claiming
        finally:
            self._in_round = False

    async def _follow_chains(self) -> int:
        """The next jobs of chains that went on here, and nothing else."""
        urgent, self._urgent = self._urgent, set()
        if not self.buffer.free:
            return 0
        return sum([await self._claim_from(self.served[queue]) for queue in sorted(urgent)])

    async def round(self) -> tuple[int, int]:
        """One claim from each queue in turn: (how much room there was, how many were claimed)."""
        if self._unanswered:
            await self._adopt()
        await self._admit()
        await self._find_stuck(again=True)
        names = list(self.served)
        if self.all_queues and time.monotonic() > self._look_again:
            names = await self._look_for_queues()
        most = max(min(self.buffer.room(), self.room_left()), self.buffer.kept)
        if time.monotonic() - self._last_attempts_at > LAST_ATTEMPTS_SECONDS and not self.buffer.free:
            self.buffer.keep_slots(1)
        self._turn += 1
        claimed = 0
        for index in range(len(names)):
            served = self.served[names[(self._turn + index) % len(names)]]
            if served.is_worth_a_look():
                claimed += await self._claim_from(served)
        if self.buffer.kept:
            self.buffer.hand([])  # no queue had room for more: then they go on with what lies ready
        return most, claimed

    async def _admit(self) -> None:
        """Jobs that wait for others, or for their turn, are let in: those that came in somebody's transaction, too."""
        self._admission_put_off = time.monotonic() < self._admit_at
        if self._admission_put_off:
            return
        try:
            while (admitted := await self.app.arun_for_worker(self.app._admit)).jobs:
                if not self.served.keys() >= set(admitted.queues):
                    self._look_again = 0.0  # they may be in queues that we do not know yet
            self._held_up = admitted.left > 0
        except Exception as error:  # what has not arrived keeps nothing else from being claimed
            self._held_up = True
            log.warning("arriving jobs could not be admitted, which is tried again: %s", error)
        self._admit_pause = min(2 * self._admit_pause, ADMIT_HELD_UP_SECONDS[1])
        if not self._held_up:
            self._admit_pause = ADMIT_HELD_UP_SECONDS[0]
        self._admit_at = time.monotonic() + (self._admit_pause if self._held_up else ADMIT_SECONDS)

    async def _claim_from(self, served: Served) -> int:
        """For slots that are free whatever there is, last attempts too; then ahead what may wait in the buffer."""
        claimed = 0
        for_slots = served.room(min(self.buffer.free or self.buffer.kept, self.room_left()))
        if for_slots > 0 and not self.stopping:
            claimed += await self._claim(served, for_slots, prefetch=False)
        ahead = min(served.room(min(self.buffer.room(), self.room_left())), MOST_AT_ONCE)
        if ahead > 0 and not self.stopping and claimed >= for_slots:
            claimed += await self._claim(served, ahead, prefetch=True)
        return claimed

    async def _claim(self, served: Served, wanted: int, *, prefetch: bool) -> int:
        token, began = uuid4(), time.monotonic()
        request = ClaimRequest(
            queue=served.name,
            limit=wanted,
            token=token,
            worker=self.name,
            types=self.app.task_names,
            policies=self.app.policies,
            prefetch=prefetch,
            after=served.position(),
            begun=False,
        )
        unanswered = Unanswered(token, served, began)
        self._unanswered.append(unanswered)  # until it is: whatever happens to us meanwhile, it may have been done
        jobs = await self.app.arun_for_worker(lambda: self.app.store.claim(request))
        self._unanswered.remove(unanswered)
        served.claimed(jobs, wanted, began, request.after is None)
        attempts = self._hold(jobs, token, began)
        if prefetch:
            self.buffer.put(attempts)
        else:
            self._last_attempts_at = time.monotonic()
            self.buffer.hand(attempts)
        return len(jobs)

    def _hold(self, jobs: list[Job], token: UUID, began: float) -> list[Attempt]:
        attempts = [Attempt(self.app, self.app.bind(job), token) for job in jobs]
        self.leases.hold(attempts, began)
        return attempts

    # Claims whose answers were lost

    async def _adopt(self) -> None:
        """What such claims took, if they were carried out: looked for before more is claimed, until there is an answer
        and it is too late for them to be carried out yet."""
        for claim in list(self._unanswered):
            jobs = await self.app.arun_for_worker(lambda: self.app.store.adopt(claim.token))  # noqa: B023
            new = claim.found(jobs)
            if claim.is_over(time.monotonic()):
                self._unanswered.remove(claim)
            if not new:
                continue
            log.warning("%d jobs were claimed by a claim whose answer was lost", len(new), extra={"worker": self.name})
            claim.served.held += len(new)
            attempts = self._hold(new, claim.token, claim.began)
            (self.give_back if self.stopping else self.buffer.put)(attempts)

    async def release_unanswered(self) -> None:
        """When the worker ends: give back what a claim took that was cut short."""
        while self._unanswered:
            try:
                await self._adopt()
            except Exception as error:
                log.warning("the jobs of a claim whose answer was lost cannot be looked for: %s", error)
            if self._unanswered:
                await asyncio.sleep(LOOK_SECONDS)

    def ended(self, attempt: Attempt) -> None:
        """A job of a queue that has a limit here is here no longer."""
        served = self.served.get(attempt.job.queue)
        if served is not None and served.limit is not None:
            served.held -= 1
            self._woken.set()

    async def _look_for_queues(self) -> list[str]:
        """Those in which something waits; there is nothing to be claimed from any other."""
        names = await self.app.arun_for_worker(self.app.store.live_queues)
        for queue in names:
            self.served.setdefault(queue, Served(queue))
        self._look_again = time.monotonic() + QUEUES_SECONDS
        self._deserted = not names
        return names

    # Waiting

    async def next_due(self) -> tuple[float, bool]:
        """Seconds until the first job that waits for its time, at most the poll interval; and whether a slot that
        comes free is a reason to claim before that.

        One that is due and was not claimed may be a last attempt, for which no slot was free. Or it is locked for a
        moment, or of a type that is unknown here, or in a paused queue: it is looked at less and less often.
        """
        if self._deserted and self._nothing_ahead and not self._told and not self._held_up:
            return self.poll_seconds, False  # as it was at the last look, and nobody has said otherwise
        seconds = await self._seconds_until_due()
        is_due = seconds is not None and seconds <= 0
        if is_due and time.monotonic() - self._vain_since > LOCKED_SECONDS and await self._find_stuck():
            seconds = await self._seconds_until_due()
        self._nothing_ahead = seconds is None
        if (seconds is None or seconds > 0) and not self._held_up:
            self._vain_since = float("inf")
            return (self.poll_seconds if seconds is None else min(self.poll_seconds, seconds)), False
        self._vain = min(self._vain * 2, VAIN_SECONDS[1])
        self._vain_since = min(self._vain_since, time.monotonic())
        return min(self.poll_seconds, self._vain), not self.quiet

    async def _seconds_until_due(self) -> float | None:
        queues = [served.name for served in self.served.values() if not served.resting]
        return await self.app.arun_for_worker(lambda: self.app.store.next_due(queues))

    async def _find_stuck(self, *, again: bool = False) -> bool:
        """Queues in which all that is due is not for us are left alone until a hint, or a poll, says otherwise: each
        look would go through all of it. Whether there are any. `again`: look again at those that we know of."""
        now = time.monotonic()
        known = [served.name for served in self.served.values() if served.resting]
        if (again and not known) or now < (self._wake_at if again else self._rest_at):
            return False
        queues, types = known if again else list(self.served), self.app.task_names
        stuck = set(await self.app.arun_for_worker(lambda: self.app.store.stuck(queues, types)))
        for queue in queues:
            self.served[queue].resting = queue in stuck and not self.served[queue].told  # by a hint that came meanwhile
        self._wake_at, self._rest_at = now + self.poll_seconds, now + min(self.poll_seconds, LOCKED_SECONDS)
        return bool(stuck)

    async def rest(self, seconds: float, or_room: bool = False) -> None:
        """Until someone wakes us, for so long at most; or until a slot is free or less lies ready."""
        if len(self.buffer) or self._unanswered:
            seconds = min(seconds, LONGEST_LOOK)
        waits = [asyncio.ensure_future(self._woken.wait())]
        if or_room:
            waits.append(asyncio.ensure_future(self.buffer.room_made.wait()))
        try:
            await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    def wake(self) -> None:
        self._woken.set()

    def expect(self, queue: str) -> None:
        """Something falls due in this queue now."""
        if (served := self.served.get(queue)) is not None:
            served.wake()
        self._woken.set()

    def went_on(self, queue: str) -> bool:
        """A chain has gone on in this queue: if we serve it, we look there first. Whether we do."""
        if queue in self.served:
            self._urgent.add(queue)
        self._woken.set()
        return queue in self.served

    def may_follow(self, job: NewJob) -> bool:
        """Whether whoever completes the job before this one may go on with it at once: as far as we know nothing else
        waits, so nobody is passed over. A last attempt is not to wait in the buffer."""
        served = self.served.get(job.queue)
        if served is None or self.stopping or not self._sated or self._woken.is_set() or job.max_attempts == 1:
            return False
        if (
            self._in_round
            or served.room(min(self.buffer.free, self.room_left())) <= 0
            or job.type not in self.app.tasks
        ):
            return False
        self._following += 1  # a place is kept for it meanwhile
        served.held += 1
        return True

    def not_following(self, job: NewJob) -> None:
        """Whatever came of it: the place is not kept any longer."""
        self._following -= 1
        self.served[job.queue].held -= 1

    def followed(self, attempt: Attempt) -> None:
        self.served[attempt.job.queue].held += 1
        self.buffer.put([attempt])

    def room_left(self) -> int:
        return self.may_claim() - self._following

    def changed(self) -> None:
        """Something has ended, which may have freed others."""
        self._changes += 1

    @property
    def nothing_left(self) -> bool:
        """Whether a look has found nothing that was taken after all that has ended."""
        return self.idle and self._looked == self._changes and not self._unanswered

    @property
    def seems_locked(self) -> bool:
        """Whether something is due that could not be had, and that somebody may have locked for a moment."""
        return time.monotonic() - LOCKED_SECONDS < self._vain_since < float("inf")

    def heard(self, hint: Hint | None) -> None:
        """On the listener's thread."""
        if hint is None or (hint.kind == "ready" and hint.name not in self.served):
            self._look_again = 0.0
        if hint is None:
            for served in list(self.served.values()):
                served.told = True
            self.leases.ask_all()
        elif hint.kind == "ready" and hint.name in self.served:
            self.served[hint.name].wake()
        if hint is None or (hint.kind == "ready" and (self.all_queues or hint.name in self.served)):
            self._call(self.wake)
        elif hint.kind == "told":
            self.leases.ask(UUID(hint.name))

    def _call(self, function: Callable[[], None]) -> None:
        try:
            self._loop.call_soon_threadsafe(function)
        except RuntimeError:
            log.debug("a hint came after the end")

    def stop(self) -> None:
        self.stopping = True
        self._woken.set()
        self.buffer.room_made.set()

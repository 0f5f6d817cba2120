"""One turn of the pump, decided: which looks to make, and how long to wait afterwards. Pure: no I/O, no clock.

A `Turn` is a frozen value of all that the looks so far have seen. `plan` says what this turn does, the pump does it and
hands in what came of it (`admitted`, `found_queues`, `checked_stuck`, `claimed`, `asked_when_due`), and `rest` says how
long to wait.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from .bell import NOTHING, Reason, Reasons
from .ledger import Ledger

ADMIT_SECONDS = 0.1  # between admissions while there is other work
ADMIT_BLOCKED_SECONDS = 0.01, 0.5  # the same while a lock of another transaction blocks some: first, and longest
CHAIN_SECONDS = 0.01  # for a chain to continue, before the next look at everything
LOOK_ROUND_SECONDS = 0.1  # between looks at everything, while chains continue
FIND_QUEUES_SECONDS = 1.0  # between looks for new queues, while the known ones have work
LAST_ATTEMPTS_SECONDS = 0.25  # after which a slot is kept for last attempts of a queue, however busy all slots are
PASSED_OVER_SECONDS = 0.001, 0.25  # between looks at a job that is due and could not be claimed: first, and longest
LOCKED_SECONDS = 1.0  # that a due job may be locked, before it counts as one that this worker cannot run
NEVER = math.inf
BEYOND_CHAINS = Reason.HINT | Reason.LOOK | Reason.STOP


@dataclass(frozen=True, slots=True)
class Plan:
    """What one turn does, in this order."""

    first: tuple[str, ...]  # queues to claim from before anything else: a chain continues there, or a hint names them
    only_first: bool  # if these claims find jobs, that is all
    admit: bool
    recheck_stuck: bool
    find_queues: bool
    keep_slot: bool


@dataclass(frozen=True, slots=True)
class Rest:
    seconds: float
    also: Reason = NOTHING  # reasons that end it, beside those that always do


@dataclass(frozen=True, slots=True)
class Turn:
    poll_seconds: float
    all_queues: bool = False
    until_idle: bool = False
    number: int = 0
    # Seen by the last look
    room: int = 0
    jobs: int = 0
    saw_all: bool = True  # every queue had its turn
    all_slots_were_free: bool = False
    was_urged: bool = True
    due_in: float | None = None  # seconds until a known job is due; None: no job waits for its time
    saw_no_queue: bool = False
    saw_nothing_ahead: bool = False
    admission_blocked: bool = False
    admission_put_off: bool = False
    # When to do what, by the clock of the worker's process
    admit_at: float = 0.0
    admit_pause: float = ADMIT_BLOCKED_SECONDS[0]
    find_queues_at: float = 0.0
    look_round_at: float = 0.0  # then a turn looks at everything, however busy chains are
    recheck_at: float = 0.0
    check_at: float = 0.0
    passed_over_since: float = NEVER
    passed_over_pause: float = PASSED_OVER_SECONDS[0]

    # What the last look means

    @property
    def idle(self) -> bool:
        """It claimed less than it had room for: as far as this worker knows, no other job waits."""
        return self.jobs < self.room and self.saw_all

    def seems_locked(self, now: float) -> bool:
        """A job is due and could not be claimed, perhaps because another transaction has locked it for a moment."""
        return now - LOCKED_SECONDS < self.passed_over_since < NEVER

    # The turn, step by step

    def plan(self, reasons: Reasons, ledger: Ledger, now: float, short: frozenset[str]) -> Plan:
        """`short`: the queues of which the last claim took all jobs that it could."""
        first = (reasons.chains | reasons.hinted) & short
        return Plan(
            first=tuple(sorted(first)) if ledger.free_slots else (),
            only_first=bool(reasons.chains) and not reasons.kinds & BEYOND_CHAINS and now < self.look_round_at,
            admit=now >= self.admit_at,
            recheck_stuck=now >= self.recheck_at,
            find_queues=self.all_queues and (now > self.find_queues_at or reasons.any_queue),
            keep_slot=now > ledger.look_for_last_at and not ledger.free_slots,
        )

    def begin(self, plan: Plan, reasons: Reasons, ledger: Ledger, now: float) -> Turn:
        """Until its claims are done, the turn has found nothing: it is not idle."""
        return replace(
            self, number=self.number + 1, room=0, jobs=0, admission_put_off=not plan.admit, was_urged=reasons.urge,
            all_slots_were_free=ledger.all_slots_free, look_round_at=now + LOOK_ROUND_SECONDS,
        )  # fmt: skip

    def admitted(self, blocked: bool, now: float) -> Turn:
        """`blocked`: locks of other transactions keep some jobs out."""
        first, longest = ADMIT_BLOCKED_SECONDS
        pause = min(2 * self.admit_pause, longest) if blocked else first
        admit_at = now + (pause if blocked else ADMIT_SECONDS)
        return replace(self, admission_blocked=blocked, admit_pause=pause, admit_at=admit_at)

    def found_queues(self, any_queue: bool, now: float) -> Turn:
        return replace(self, saw_no_queue=not any_queue, find_queues_at=now + FIND_QUEUES_SECONDS)

    def checked_stuck(self, now: float) -> Turn:
        seconds = min(self.poll_seconds, LOCKED_SECONDS)
        return replace(self, recheck_at=now + self.poll_seconds, check_at=now + seconds)

    def claimed(self, room: int, jobs: int, saw_all: bool = True) -> Turn:
        """All claims of this turn together."""
        turn = replace(self, room=room, jobs=jobs, saw_all=saw_all)
        if jobs:
            turn = replace(turn, passed_over_since=NEVER, passed_over_pause=PASSED_OVER_SECONDS[0])
        if turn.idle:
            admit_at = turn.admit_at if turn.admission_blocked else 0.0
            turn = replace(turn, find_queues_at=0.0, admit_at=admit_at)
        return turn

    @property
    def must_ask_when_due(self) -> bool:
        """The look was idle, and its answer may differ from that of the last one."""
        unchanged = self.saw_no_queue and self.saw_nothing_ahead and not self.was_urged and not self.admission_blocked
        return self.idle and not (unchanged and not self.jobs)

    def may_check_stuck(self, due_in: float | None, now: float) -> bool:
        """A job has been due for a while and could not be claimed: perhaps its queue holds nothing for this worker."""
        is_due = due_in is not None and due_in <= 0
        return is_due and now - self.passed_over_since > LOCKED_SECONDS and now >= self.check_at

    def asked_when_due(self, due_in: float | None, now: float) -> Turn:
        turn = replace(self, due_in=due_in, saw_nothing_ahead=due_in is None)
        if not turn._passed_over:
            return replace(turn, passed_over_since=NEVER)
        pause = min(2 * self.passed_over_pause, PASSED_OVER_SECONDS[1])
        return replace(turn, passed_over_pause=pause, passed_over_since=min(self.passed_over_since, now))

    @property
    def _passed_over(self) -> bool:
        return (self.due_in is not None and self.due_in <= 0) or self.admission_blocked

    def rest(self) -> Rest:
        ended = Reason.ENDED if self.until_idle else NOTHING
        if not self.idle:
            return Rest(0.0) if self.room > 0 else Rest(self.poll_seconds, Reason.ROOM | ended)
        seconds, also = self.poll_seconds, ended
        if self._passed_over:
            # It may be a last attempt, for which no slot was free. Or it is locked for a moment, or its type is unknown
            # here, or its queue is paused: the looks become rarer.
            seconds = min(seconds, self.passed_over_pause)
            also |= NOTHING if self.all_slots_were_free else Reason.ROOM
        elif self.due_in is not None:
            seconds = min(seconds, self.due_in)
        if self.admission_put_off:  # a job that caused this turn may be among those that arrive
            seconds = min(seconds, ADMIT_SECONDS)
        return Rest(seconds, also)

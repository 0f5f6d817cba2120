"""The worker's decisions, without a store: limits, reasons to look again, and turns of the pump."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass, field, replace

from hypothesis import given
from hypothesis import strategies as st

from windlass.worker.bell import NOTHING, Bell, Reason, Reasons
from windlass.worker.ledger import BYTES_AHEAD, Ledger, Place
from windlass.worker.turn import PASSED_OVER_SECONDS, Turn

POLL = 5.0

# The ledger

actions = st.lists(
    st.tuples(
        st.sampled_from(["claim", "claim ahead", "start", "release", "twice", "ran", "unwritten"]), st.integers(0, 30)
    )
)


@given(slots=st.integers(1, 20), limit=st.integers(1, 5), max_jobs=st.none() | st.integers(1, 40), script=actions)
def test_no_claim_goes_beyond_a_limit(
    slots: int, limit: int, max_jobs: int | None, script: list[tuple[str, int]]
) -> None:
    ledger = Ledger(slots, {"narrow": limit, "wide": None}, max_jobs=max_jobs, unwritten_rows=20)
    waiting: list[Place] = []
    running: list[Place] = []
    narrow: set[Place] = set()
    unwritten = 0
    for action, number in script:
        queue = "narrow" if number % 2 else "wide"
        match action:
            case "claim" | "claim ahead":
                room = ledger.room_for_slots(queue) if action == "claim" else ledger.room_ahead(queue)
                assert not (ledger.is_full and room)
                places = ledger.take(queue, min(room, number))
                waiting += places
                narrow |= {place for place in places if queue == "narrow"}
            case "start" if waiting and len(running) < slots:
                running.append(waiting.pop())
                running[-1].start()
            case "release" | "twice" if running or waiting:
                gone = (running or waiting).pop()
                gone.release()
                if action == "twice":
                    gone.release()
                narrow.discard(gone)
            case "ran":
                ledger.ran(number / 1000)
            case "unwritten":
                change = max(-unwritten, number - 15)
                unwritten += change
                ledger.add_unwritten(change, 0)
        assert (ledger.waiting, ledger.running) == (len(waiting), len(running))
        assert ledger.held["narrow"] == len(narrow) <= limit
        assert ledger.is_full == (unwritten >= 20)
        assert max_jobs is None or ledger.started + ledger.waiting <= max_jobs
        assert ledger.waiting <= slots - ledger.running + max(ledger.prefetch_target, 2000)


def test_only_free_or_kept_slots_have_room_for_last_attempts() -> None:
    ledger = Ledger(2)
    ledger.ran(0.0001)
    for place in ledger.take("default", 2):
        place.start()
    assert (ledger.room_for_slots(), ledger.room_ahead() > 0) == (0, True)
    ledger.kept_slots = 1
    assert ledger.room_for_slots() == 1


# The bell

rings = st.lists(st.tuples(st.sampled_from([*Reason]), st.sampled_from([None, "a", "b"]), st.booleans()), max_size=20)


@given(script=rings)
def test_each_reason_is_taken_once(script: list[tuple[Reason, str | None, bool]]) -> None:
    async def ring() -> None:
        bell, rung, hinted = Bell(), NOTHING, set()
        for reason, queue, then_take in script:
            bell.ring(reason, queue)
            rung |= reason
            if reason is Reason.HINT and queue is not None:
                hinted.add(queue)
            if then_take:
                taken = bell.take()
                assert (taken.kinds, taken.hinted) == (rung, frozenset(hinted))
                assert bell.take() == Reasons()
                rung, hinted = NOTHING, set()

    asyncio.run(ring())


async def test_a_ring_from_another_thread_before_or_during_a_wait_ends_it() -> None:
    bell = Bell()
    for _ in range(50):
        thread = threading.Thread(target=bell.ring_from_thread, args=(Reason.HINT, "a"))
        thread.start()
        async with asyncio.timeout(10):
            await bell.wait(60)
        thread.join()
        assert bell.take().hinted == {"a"}


async def test_room_ends_only_a_wait_that_asks_for_it() -> None:
    bell = Bell()
    asyncio.get_running_loop().call_later(0.01, bell.ring, Reason.ROOM)
    async with asyncio.timeout(10):
        await bell.wait(60, Reason.ROOM)
    bell.take()
    bell.ring(Reason.ROOM)
    asyncio.get_running_loop().call_later(0.05, bell.ring, Reason.LOOK)
    async with asyncio.timeout(10):
        await bell.wait(60)
    assert bell.take().kinds == Reason.ROOM | Reason.LOOK


# Turns


@dataclass
class Model:
    """A store with jobs that have a moment, and one worker whose attempts take some time."""

    slots: int
    all_queues: bool
    until_idle: bool = False
    now: float = 100.0
    waiting: list[tuple[float, str]] = field(default_factory=list)
    running: list[tuple[float, Place]] = field(default_factory=list)
    late: list[float] = field(default_factory=list)  # by how much each job started late
    turns: int = 0

    def __post_init__(self) -> None:
        self.ledger = Ledger(self.slots)
        self.turn = Turn(POLL, self.all_queues, self.until_idle)
        self.known = set() if self.all_queues else {"a", "b"}
        self.kinds, self.hinted = NOTHING, set[str]()

    def enqueue(self, delay: float, queue: str, *, hint: bool) -> None:
        self.waiting.append((self.now + delay, queue))
        if hint:
            self.kinds |= Reason.HINT
            self.hinted.add(queue)

    def end_attempts(self) -> None:
        for one in [one for one in self.running if one[0] <= self.now]:
            self.running.remove(one)
            one[1].release()
            self.kinds |= Reason.ENDED | Reason.ROOM

    def claim(self, queue: str) -> int:
        due = sorted(one for one in self.waiting if one[0] <= self.now and one[1] == queue)
        room = self.ledger.room_for_slots(queue)
        for job, place in zip(due, self.ledger.take(queue, min(room, len(due))), strict=False):
            self.waiting.remove(job)
            self.late.append(self.now - job[0])
            place.start()
            self.running.append((self.now + 0.3, place))
        return min(room, len(due))

    def act(self) -> tuple[float, Reason]:
        """One turn of the pump, as it goes: how long it rests, and what ends that beside a hint."""
        self.turns += 1
        reasons = Reasons(self.kinds, frozenset(self.hinted))
        self.kinds, self.hinted = NOTHING, set()
        if self.all_queues:
            self.known |= reasons.hinted
        plan = self.turn.plan(reasons, self.ledger, self.now, frozenset(self.known))
        first = sum(map(self.claim, plan.first))
        turn = self.turn.begin(plan, reasons, self.ledger, self.now)
        if plan.admit:
            turn = turn.admitted(False, self.now)
        queues = sorted(self.known)
        if plan.find_queues:
            queues = sorted({queue for moment, queue in self.waiting if moment <= self.now})
            self.known |= set(queues)
            turn = turn.found_queues(bool(queues), self.now)
        room = first + self.ledger.room()
        jobs = first + sum(self.claim(queue) for queue in queues if queue not in plan.first)
        assert jobs <= max(room, 0)
        turn = turn.claimed(room, jobs)
        if turn.must_ask_when_due:
            due = [moment - self.now for moment, queue in self.waiting if queue in self.known]
            turn = turn.asked_when_due(min(due, default=None), self.now)
        self.turn = turn
        rest = turn.rest()
        return rest.seconds, rest.also

    def run_until(self, moment: float) -> None:
        """The pump turns and rests, until something happens outside."""
        while True:
            self.end_attempts()
            seconds, also = self.act()
            if self.kinds & (Reason.HINT | Reason.LOOK | also):
                continue
            wake = self.now + max(seconds, 0.0001)  # a turn takes a moment
            if also & Reason.ROOM or self.until_idle:
                wake = min([wake, *(end for end, _ in self.running)])
            self.now = min(wake, moment)
            if self.now >= moment:
                return


pauses, delays = st.sampled_from([0.0, 0.05, 0.4, 2.0, 7.0]), st.sampled_from([0.0, 0.1, 1.0, 12.0])
events = st.lists(st.tuples(pauses, delays, st.sampled_from("ab"), st.booleans()), max_size=12)


def test_while_it_looks_a_turn_has_found_nothing() -> None:
    """Else a worker could end, or go on with a chain, on the word of the look before."""
    turn = Turn(POLL).claimed(room=5, jobs=0)
    assert turn.idle
    ledger = Ledger(5)
    begun = turn.begin(turn.plan(Reasons(), ledger, 1.0, frozenset()), Reasons(), ledger, 1.0)
    assert not begun.idle


def test_chains_that_continue_put_off_other_queues_for_a_moment_only() -> None:
    turn, ledger, chain = Turn(POLL), Ledger(5), Reasons(Reason.CHAIN, chains=frozenset("a"))
    turn = turn.begin(turn.plan(chain, ledger, 1.0, frozenset("ab")), chain, ledger, 1.0)
    assert turn.plan(chain, ledger, 1.05, frozenset("ab")).only_first
    assert not turn.plan(chain, ledger, 1.2, frozenset("ab")).only_first


def test_a_look_that_takes_all_asks_at_once_when_the_next_job_is_due() -> None:
    turn = replace(Turn(POLL), number=1).claimed(room=5, jobs=1)
    assert turn.must_ask_when_due
    assert turn.asked_when_due(2.0, now=1.0).rest().seconds == 2.0
    assert replace(Turn(POLL), number=1).claimed(room=5, jobs=5).rest().seconds == 0


@given(slots=st.integers(3, 20), all_queues=st.booleans(), script=events)
def test_no_wake_up_is_lost(slots: int, all_queues: bool, script: list[tuple[float, float, str, bool]]) -> None:
    """A job with a hint starts when it is due, if a slot is free; one without a hint at the next poll after that."""
    model = Model(slots, all_queues)
    model.run_until(model.now + 0.01)
    for pause, delay, queue, hint in script:
        model.run_until(model.now + pause)
        model.enqueue(delay, queue, hint=hint)
    model.run_until(model.now + 30)
    assert not model.waiting
    all_hinted = all(hint for *_, hint in script)
    for_slots = 0.3 * len(script) / slots + PASSED_OVER_SECONDS[1]
    assert max(model.late, default=0.0) <= for_slots + 0.11 + (0 if all_hinted else POLL)


@given(script=events)
def test_a_worker_with_nothing_to_do_looks_once_a_poll(script: list[tuple[float, float, str, bool]]) -> None:
    model = Model(10, all_queues=True)
    for pause, delay, queue, hint in script:
        model.run_until(model.now + pause)
        model.enqueue(delay, queue, hint=hint)
    model.run_until(model.now + 30)
    model.turns = 0
    model.run_until(model.now + 20 * POLL)
    assert model.turns <= 21


@given(slots=st.integers(1, 5), count=st.integers(0, 30))
def test_until_idle_ends(slots: int, count: int) -> None:
    model = Model(slots, all_queues=True, until_idle=True)
    for _ in range(count):
        model.enqueue(0.0, "a", hint=False)
    ends = model.now + 1 + 0.4 * (count / slots + 1)
    model.run_until(ends)
    assert not model.waiting
    assert not model.running
    assert model.turn.idle
    assert model.turn.all_slots_were_free
    assert not model.kinds & Reason.ENDED
    assert not model.turn.seems_locked(model.now)


def test_inputs_that_wait_are_bounded_in_bytes() -> None:
    ledger = Ledger(2)
    ledger.ran(0.001)
    places = ledger.take("a", 10)
    assert ledger.room_ahead() > 0
    for place in places:
        place.hold(BYTES_AHEAD // 8)
    assert ledger.room_ahead() == 0, "more than that many bytes wait"
    for place in places[:4]:
        place.start()
        place.release()
    places[4].release()
    assert ledger.room_ahead() > 0
    for place in places:
        place.release()
    assert ledger.waiting_bytes == 0

"""Whatever is done to a queue, in whatever order: each store answers as the model does.

WINDLASS_TEST_EXAMPLES and WINDLASS_TEST_STEPS make the run longer, WINDLASS_TEST_SEED makes it another one.
"""

from __future__ import annotations

import os
import random
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import msgspec
import pytest
from hypothesis import HealthCheck, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    rule,
    run_state_machine_as_test,
)

from windlass.backoff import Backoff, Exponential, Fixed
from windlass.errors import Conflict
from windlass.job import Job, NewJob
from windlass.lifecycle import Event, allows
from windlass.outcome import Cancel, Fail, Snooze, decide, give_back
from windlass.policy import FOR_EVER, Policy
from windlass.stores.store import Lease, Refusal, Store

from .emptying import empty
from .model import Model, ModelJob, Taken
from .scene import Scene, new_job

EXAMPLES = int(os.environ.get("WINDLASS_TEST_EXAMPLES", "12"))
STEPS = int(os.environ.get("WINDLASS_TEST_STEPS", "100"))
SEED = int(os.environ.get("WINDLASS_TEST_SEED", "1"))

SLACK = timedelta(seconds=10)  # how long an example may take
STAGGER = 10.0  # the most that a rescue adds

QUEUES = st.sampled_from(["one", "two"])
# Everything that is waited for ends half a minute before or after the moments that the clock can be moved to.
DELAYS = st.sampled_from([0.0, 0.0, 0.0, 90.0, 1830.0])
LEASES = st.sampled_from([90.0, 630.0])
MOVES = st.sampled_from([60, 600, 3600, 3 * 86_400])
KEEPS = st.sampled_from([0, 1830, 2 * 86_400 + 30, FOR_EVER, None])
BACKOFFS: st.SearchStrategy[Backoff] = st.sampled_from([Fixed(30), Exponential(base=50, cap=50)])


def details(backoff: Backoff) -> str:
    return msgspec.json.encode(Policy(backoff=backoff).details()).decode()


def given_job(number: int, **fields: Any) -> NewJob:
    return new_job(id=UUID(int=number), id_given=True, queue="one", max_attempts=2, policy=details(Fixed(30)), **fields)


# Jobs whose ids their enqueuer has chosen; whoever sends such an id again means the same job.
PLAIN = given_job(1)
GIVEN = [
    PLAIN,
    given_job(2, unique_key="a", unique_until="finished"),
    given_job(3, unique_key="b", unique_until="claimed", on_conflict="raise"),
    given_job(4, unique_key="a", unique_until="forever"),
]


# How an attempt ends.
RESULTS: dict[str, Any] = {
    "complete": "1",
    "fail": Fail("no"),
    "error": ValueError("boom"),
    "snooze": Snooze(after=90),
    "cancel": Cancel("no more"),
}
OUTCOMES = [*RESULTS, "give back", "error", "fail"]


@st.composite
def fresh_jobs(draw: st.DrawFn) -> NewJob:
    job = new_job(
        id=uuid4(),
        queue=draw(QUEUES),
        rank=draw(st.sampled_from([0, 0, -5, 1])),
        tenant=draw(st.sampled_from(["", "", "acme"])),
        delay_seconds=draw(DELAYS),
        input=f'{{"number":{draw(st.integers(0, 99))}}}',
        max_attempts=draw(st.sampled_from([1, 2, 3])),
        keep_seconds=draw(KEEPS),
        policy=details(draw(BACKOFFS)),
    )
    until = draw(st.sampled_from([None, None, None, None, "claimed", "finished", "forever", "window"]))
    if until is not None:
        job.unique_key, job.unique_until = draw(st.sampled_from(["a", "b"])), until
        job.on_conflict = draw(st.sampled_from(["keep", "keep", "raise", *["replace"] * 2 * (until == "claimed")]))
        job.window_seconds = 1830.0 if until == "window" else None
    return job


FRESH = st.lists(fresh_jobs() | fresh_jobs() | st.just(PLAIN), min_size=1, max_size=4)
BATCHES = FRESH | FRESH | st.sampled_from(GIVEN).map(lambda job: [job])

# Each as often as it is to be done.
ACTIONS = [
    *["settle"] * 6,
    *["claim"] * 5,
    *["enqueue"] * 4,
    *["act"] * 4,
    *["wait"] * 4,
    *["enqueue_again", "complete_many", "renew", "pause_or_resume", "crash"],
]


class Held(msgspec.Struct, frozen=True):
    job: Job
    token: UUID


class Queue(RuleBasedStateMachine):
    def __init__(self, store: Store) -> None:
        super().__init__()
        empty(store)
        self.store, self.scene, self.model = store, Scene(store), Model()
        self.claims: list[Held] = []  # also those that are over: a late worker may come back at any time
        self.known = [uuid4()]
        self.sent: list[list[NewJob]] = []

    # One rule: of several, hypothesis leaves some out of each example, and most need one another.
    @rule(action=st.sampled_from(ACTIONS), data=st.data())
    def take(self, action: str, data: st.DataObject) -> None:
        getattr(self, action)(data.draw)

    @invariant()
    def agrees(self) -> None:
        self.model.check(self.scene.all(), self.do("counts"), self.do("paused"))

    def do(self, name: str, *arguments: Any, **options: Any) -> Any:
        return self.scene.do(name, *arguments, **options)

    def learn_time(self, mine: ModelJob, job: Job | None = None) -> None:
        """When the store made it due, which must be about when the model did."""
        job = job or self.scene.job(mine.id)
        assert abs(job.run_at - mine.run_at) < SLACK
        mine.run_at = job.run_at

    # Enqueueing

    def enqueue(self, draw: st.DrawFn) -> None:
        # What hypothesis repeats is new here.
        batch = [job if job.id_given else msgspec.structs.replace(job, id=uuid4()) for job in draw(BATCHES)]
        self.send(batch)
        self.sent.append(batch)

    def enqueue_again(self, draw: st.DrawFn) -> None:
        """Whose answer was lost."""
        if self.sent:
            self.send(draw(st.sampled_from(self.sent)), resent=True)

    def send(self, batch: list[NewJob], resent: bool = False) -> None:
        try:
            expected = self.model.enqueue(batch)
        except Taken:
            with pytest.raises(Conflict):
                self.do("enqueue", batch, resent=resent)
            return
        answers = self.do("enqueue", batch, resent=resent)
        assert [(answer.job.id, answer.created) for answer in answers] == expected
        for answer in answers:
            mine = self.model.jobs.get(answer.job.id)
            if mine is not None and mine.state == "pending":
                self.learn_time(mine, answer.job)
        self.known += [id for id, created in expected if created and id not in self.known]

    # A job's way

    def claim(self, draw: st.DrawFn) -> None:
        queue, limit, lease = draw(QUEUES), draw(st.integers(1, 4)), draw(LEASES)
        prefetch = draw(st.sampled_from([False, False, False, True]))
        request = self.scene.request(queue=queue, limit=limit, prefetch=prefetch, lease_seconds=lease)
        expected = self.model.claimable(queue, limit, prefetch)
        jobs = self.do("claim", request)
        if prefetch and jobs:  # where last attempts are passed over, it may be content with fewer
            expected = expected[: len(jobs)]
        self.model.claim(expected, request.token, lease)
        assert [job.id for job in jobs] == [mine.id for mine in expected]
        assert [(job.state, job.attempt) for job in jobs] == [(mine.state, mine.attempt) for mine in expected]
        self.claims += [Held(job, request.token) for job in jobs]

    def some_claim(self, draw: st.DrawFn) -> Held:
        holding = [held for held in self.claims if self.model.holds(held.job.id, held.token)]
        late = not holding or draw(st.sampled_from([False, False, True]))
        return draw(st.sampled_from(self.claims if late else holding))

    def settle(self, draw: st.DrawFn) -> None:
        if not self.claims:
            return self.claim(draw)
        held, outcome = self.some_claim(draw), draw(st.sampled_from(OUTCOMES))
        if outcome == "give back":
            settlement = give_back(held.job, held.token)
        else:
            settlement = decide(held.job, held.token, RESULTS[outcome], random=random.random)
        reason, mine = self.model.refusal(settlement), self.model.jobs.get(held.job.id)
        refusals = self.do("settle", [settlement])
        # Whether an attempt's end is found again when the job was brought back since then, a store may not know.
        if not (mine is not None and mine.brought_back and reason == "taken by another" and not refusals):
            assert refusals == ([Refusal(held.job.id, reason, held.token)] if reason else [])
        if self.model.holds(held.job.id, held.token):
            self.model.settle(settlement)
            if mine is not None and mine.state == "pending":
                self.learn_time(mine)

    def complete_many(self, draw: st.DrawFn) -> None:
        several = [self.some_claim(draw) for _ in range(3)] if self.claims else []
        settlements = [decide(held.job, held.token, "2", random=random.random) for held in several]
        expected = []
        for settlement, held in zip(settlements, several, strict=True):
            if (reason := self.model.refusal(settlement)) is not None:
                expected.append((settlement.id, settlement.token, reason))
            elif self.model.holds(held.job.id, held.token):
                self.model.settle(settlement)
        refusals = self.do("settle", settlements)
        assert sorted((refusal.id, refusal.token, refusal.reason) for refusal in refusals) == sorted(expected)

    def renew(self, draw: st.DrawFn) -> None:
        several, seconds = [self.some_claim(draw) for _ in range(3)] if self.claims else [], draw(LEASES)
        renewals = self.do("renew", [Lease(held.job.id, held.token, seconds) for held in several])
        for held, renewal in zip(several, renewals, strict=True):
            assert (renewal.expires_at is not None) == self.model.renew(held.job.id, held.token, seconds)
            if renewal.expires_at is not None:
                assert renewal.cancel_requested == self.model.jobs[held.job.id].cancel_requested

    def crash(self, draw: st.DrawFn) -> None:
        """The workers forget what they held."""
        self.claims.clear()

    # What people do

    def act(self, draw: st.DrawFn) -> None:
        event: Event = draw(st.sampled_from(["cancel", "bring back", "run now", "delete", "bring back"]))
        able = [id for id, mine in self.model.jobs.items() if allows(event, mine.state)]
        fitting: bool = draw(st.booleans())
        some = st.sampled_from(able) if able and fitting else st.sampled_from(self.known)
        ids = sorted(draw(st.lists(some, min_size=1, max_size=2, unique=True)))
        expected = [self.model.act(event, id) for id in ids]
        operation = {"cancel": "cancel", "bring back": "retry", "run now": "run_now", "delete": "delete"}[event]
        changes = self.do(operation, ids)
        assert [(change.done, change.state) for change in changes] == expected
        for change in changes:
            if change.done and change.state == "pending" and event != "delete":
                self.learn_time(self.model.jobs[change.id])

    def pause_or_resume(self, draw: st.DrawFn) -> None:
        paused = draw(st.sampled_from([set(), {"one"}, {"one", "two"}]))
        for queue in sorted(paused ^ self.model.paused):
            self.do("pause" if queue in paused else "resume", queue)
        self.model.paused = paused

    # Time

    def wait(self, draw: st.DrawFn) -> None:
        step = timedelta(seconds=draw(MOVES))
        self.store.clock.move(step)
        self.model.offset += step
        upkeep = draw(st.sampled_from([self.rescue, self.rescue, self.prune, None]))
        if upkeep is not None:
            upkeep()

    def rescue(self) -> None:
        expired = {mine.id: mine for mine in self.model.expired()}
        settlements = self.do("rescue", 100)
        assert {one.id for one in settlements} == expired.keys()
        for settlement in settlements:
            mine = expired[settlement.id]
            if mine.cancel_requested:
                assert settlement.state == "cancelled"
            else:
                assert settlement.state == ("failed" if mine.is_last(mine.attempt) else "pending")
            if settlement.state == "pending":
                assert settlement.delay_seconds is not None
                assert 25 <= settlement.delay_seconds <= 50 + STAGGER
            self.model.settle(settlement, rescued=True)
            if settlement.state == "pending":
                self.learn_time(mine)

    def prune(self) -> None:
        gone, late = self.model.to_prune()
        pruned = sum(iter(lambda: self.do("prune", 2), 0))
        gone |= late - {job.id for job in self.scene.all()}
        for id in gone:
            del self.model.jobs[id]
        assert pruned == len(gone)


@pytest.mark.timeout(3600 if EXAMPLES > 100 else 600)  # a failing example is made as small as can be, which takes time
def test_each_store_does_what_the_model_does(shared_store: Store) -> None:
    chosen = settings(
        max_examples=EXAMPLES,
        stateful_step_count=STEPS,
        deadline=None,
        database=None,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    machine: Any = seed(SEED)(lambda: Queue(shared_store))
    try:
        run_state_machine_as_test(machine, settings=chosen)
    except Exception as error:
        error.add_note(
            f"WINDLASS_TEST_SEED={SEED} WINDLASS_TEST_EXAMPLES={EXAMPLES} WINDLASS_TEST_STEPS={STEPS} replays it"
        )
        raise

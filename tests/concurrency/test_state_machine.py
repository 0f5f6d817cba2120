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
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from windlass.backoff import Backoff, Exponential, Fixed
from windlass.errors import Conflict
from windlass.job import Job, NewJob
from windlass.outcome import Cancel, Fail, Snooze, decide, give_back
from windlass.policy import FOR_EVER, Policy
from windlass.stores.store import Lease, Refusal, Store

from .emptying import empty
from .model import Model, ModelJob, Taken
from .scene import Scene, new_job

EXAMPLES = int(os.environ.get("WINDLASS_TEST_EXAMPLES", "25"))
STEPS = int(os.environ.get("WINDLASS_TEST_STEPS", "30"))
SEED = int(os.environ.get("WINDLASS_TEST_SEED", "1"))

SLACK = timedelta(seconds=10)  # how long an example may take
STAGGER = 10.0  # the most that a rescue adds

QUEUES = st.sampled_from(["one", "two"])
# Everything that is waited for ends half a minute before or after the moments that the clock can be moved to.
DELAYS = st.sampled_from([0.0, 0.0, 90.0, 1830.0])
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
    until = draw(st.sampled_from([None, None, "claimed", "finished", "forever", "window"]))
    if until is not None:
        job.unique_key, job.unique_until = draw(st.sampled_from(["a", "b"])), until
        job.on_conflict = draw(st.sampled_from(["keep", "raise", "replace" if until == "claimed" else "keep"]))
        job.window_seconds = 1830.0 if until == "window" else None
    return job


BATCHES = st.sampled_from(GIVEN).map(lambda job: [job]) | st.lists(
    fresh_jobs() | st.just(PLAIN), min_size=1, max_size=3
)


class Held(msgspec.Struct, frozen=True):
    job: Job
    token: UUID


class Queue(RuleBasedStateMachine):
    def __init__(self, store: Store) -> None:
        super().__init__()
        empty(store)
        self.store, self.scene, self.model = store, Scene(store), Model()
        self.claims: list[Held] = []  # also those that are over: a late worker may come back at any time
        self.known: list[UUID] = []
        self.sent: list[list[NewJob]] = []

    def do(self, name: str, *arguments: Any, **options: Any) -> Any:
        return self.scene.do(name, *arguments, **options)

    def some_claim(self, data: st.DataObject) -> Held:
        return data.draw(st.sampled_from(self.claims))

    # Enqueueing

    @rule(batch=BATCHES)
    def enqueue(self, batch: list[NewJob]) -> None:
        # What hypothesis repeats is new here.
        batch = [job if job.id_given else msgspec.structs.replace(job, id=uuid4()) for job in batch]
        self.send(batch)
        self.sent.append(batch)

    @precondition(lambda self: self.sent)
    @rule(data=st.data())
    def enqueue_again(self, data: st.DataObject) -> None:
        """Whose answer was lost."""
        self.send(data.draw(st.sampled_from(self.sent)), resent=True)

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
        self.known += [id for id, created in expected if created]

    def learn_time(self, mine: ModelJob, job: Job | None = None) -> None:
        """When the store made it due, which must be about when the model did."""
        job = job or self.scene.job(mine.id)
        assert abs(job.run_at - mine.run_at) < SLACK
        mine.run_at = job.run_at

    # A job's way

    @rule(queue=QUEUES, limit=st.integers(1, 3), prefetch=st.sampled_from([False, False, True]), lease=LEASES)
    def claim(self, queue: str, limit: int, prefetch: bool, lease: float) -> None:
        token = uuid4()
        request = self.scene.request(
            queue=queue, limit=limit, prefetch=prefetch, token=token, lease_seconds=lease, worker="worker"
        )
        jobs = self.do("claim", request)
        expected = self.model.claim(queue, limit, prefetch, token, lease)
        assert [job.id for job in jobs] == [mine.id for mine in expected]
        assert [(job.state, job.attempt) for job in jobs] == [(mine.state, mine.attempt) for mine in expected]
        self.claims += [Held(job, token) for job in jobs]

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), seconds=LEASES)
    def renew(self, data: st.DataObject, seconds: float) -> None:
        held = self.some_claim(data)
        (renewal,) = self.do("renew", [Lease(held.job.id, held.token, seconds)])
        assert (renewal.expires_at is not None) == self.model.renew(held.job.id, held.token, seconds)
        if renewal.expires_at is not None:
            assert renewal.cancel_requested == self.model.jobs[held.job.id].cancel_requested

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), outcome=st.sampled_from(["complete", "fail", "error", "snooze", "cancel", "give back"]))
    def settle(self, data: st.DataObject, outcome: str) -> None:
        held = self.some_claim(data)
        results: dict[str, Any] = {
            "complete": "1",
            "fail": Fail("no"),
            "error": ValueError("boom"),
            "snooze": Snooze(after=90),
            "cancel": Cancel("no more"),
        }
        if outcome == "give back":
            settlement = give_back(held.job, held.token)
        else:
            settlement = decide(held.job, held.token, results[outcome], random=random.random)
        reason = self.model.refusal(settlement)
        mine = self.model.jobs.get(held.job.id)
        refusals = self.do("settle", [settlement])
        # Whether an attempt's end is found again when the job was brought back since then, a store may not know.
        if not (mine is not None and mine.brought_back and reason == "taken by another" and not refusals):
            assert refusals == ([Refusal(held.job.id, reason, held.token)] if reason else [])
        if self.model.holds(held.job.id, held.token):
            self.model.settle(settlement)
            if mine is not None and mine.state == "pending":
                self.learn_time(mine)

    @precondition(lambda self: len(self.claims) > 1)
    @rule(data=st.data())
    def complete_many(self, data: st.DataObject) -> None:
        several = data.draw(
            st.lists(st.sampled_from(self.claims), min_size=2, max_size=4, unique_by=lambda held: held.job.id)
        )
        settlements = [decide(held.job, held.token, "2", random=random.random) for held in several]
        reasons = {one.id: self.model.refusal(one) for one in settlements}
        refusals = self.do("settle", settlements)
        assert {refusal.id: refusal.reason for refusal in refusals} == {id: why for id, why in reasons.items() if why}
        for settlement, held in zip(settlements, several, strict=True):
            if self.model.holds(held.job.id, held.token):
                self.model.settle(settlement)

    @rule()
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

    @precondition(lambda self: self.claims)
    @rule()
    def crash(self) -> None:
        """The workers forget what they held."""
        self.claims.clear()

    # What people do

    @precondition(lambda self: self.known)
    @rule(data=st.data(), event=st.sampled_from(["cancel", "bring back", "run now", "delete"]))
    def act(self, data: st.DataObject, event: str) -> None:
        ids = data.draw(st.lists(st.sampled_from(self.known), min_size=1, max_size=2, unique=True))
        expected = [self.model.act(event, id) for id in sorted(ids)]
        operation = {"cancel": "cancel", "bring back": "retry", "run now": "run_now", "delete": "delete"}[event]
        changes = self.do(operation, sorted(ids))
        assert [(change.done, change.state) for change in changes] == expected
        for change in changes:
            if change.done and change.state == "pending" and event != "delete":
                self.learn_time(self.model.jobs[change.id])

    @rule(queue=QUEUES, paused=st.booleans())
    def pause_or_resume(self, queue: str, paused: bool) -> None:
        self.do("pause" if paused else "resume", queue)
        (self.model.paused.add if paused else self.model.paused.discard)(queue)

    # Time

    @rule(seconds=MOVES)
    def wait(self, seconds: int) -> None:
        self.store.clock.move(timedelta(seconds=seconds))
        self.model.offset += timedelta(seconds=seconds)

    @rule()
    def prune(self) -> None:
        gone, late = self.model.to_prune()
        pruned = sum(iter(lambda: self.do("prune", 2), 0))
        there = {job.id for job in self.scene.all()}
        gone |= late - there
        for id in gone:
            del self.model.jobs[id]
        assert pruned == len(gone)

    @invariant()
    def agrees(self) -> None:
        self.model.check(self.scene.all(), self.do("counts"), self.do("paused"))


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

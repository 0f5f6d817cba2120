"""A queue that is driven by chance, on a store and on the model at once."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any, TypeVar
from uuid import UUID, uuid4

import msgspec
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

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

T = TypeVar("T")

SLACK = timedelta(seconds=10)  # how long an operation may take
STAGGER = 10.0  # the most that a rescue adds

QUEUES = ["one", "two"]
# Everything that is waited for ends half a minute before or after the moments that the clock can be moved to.
DELAYS = [0.0, 0.0, 0.0, 90.0, 1830.0]
LEASES = [90.0, 630.0]
MOVES = [60, 600, 3600, 3 * 86_400]
KEEPS = [0, 1830, 2 * 86_400 + 30, FOR_EVER, None]
BACKOFFS: list[Backoff] = [Fixed(30), Exponential(base=50, cap=50)]
EVENTS: list[Event] = ["cancel", "bring back", "run now", "delete", "bring back"]
OPERATIONS = {"bring back": "retry", "run now": "run_now"}


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
        queue=draw(st.sampled_from(QUEUES)),
        rank=draw(st.sampled_from([0, 0, -5, 1])),
        tenant=draw(st.sampled_from(["", "", "acme"])),
        delay_seconds=draw(st.sampled_from(DELAYS)),
        input=f'{{"number":{draw(st.integers(0, 99))}}}',
        max_attempts=draw(st.sampled_from([1, 2, 3])),
        keep_seconds=draw(st.sampled_from(KEEPS)),
        policy=details(draw(st.sampled_from(BACKOFFS))),
        expires_seconds=draw(st.sampled_from([None, None, None, 90.0, 1830.0])),
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
    """What is drawn never depends on what is there, so that an example can be played again: a number chooses among
    whatever there is to choose from. `story` tells what came of it."""

    def __init__(self, store: Store) -> None:
        super().__init__()
        empty(store)
        self.store, self.scene, self.model = store, Scene(store), Model()
        self.chance = random.Random(1)  # for ids: the order of jobs can depend on them
        self.claims: list[Held] = []  # also those that are over: a late worker may come back at any time
        self.known = [self.new_id()]
        self.sent: list[list[NewJob]] = []
        self.numbers: Iterator[int] = iter(())
        self.story: list[str] = []

    @initialize(batches=st.lists(BATCHES, min_size=1, max_size=3))
    def begin(self, batches: list[list[NewJob]]) -> None:
        for batch in batches:
            self.enqueue(batch)

    # One rule: of several, hypothesis leaves some out of each example, and most need one another.
    @rule(action=st.sampled_from(ACTIONS), data=st.data())
    def take(self, action: str, data: st.DataObject) -> None:
        if action == "enqueue":
            self.enqueue(data.draw(BATCHES))
        else:
            self.numbers = iter(data.draw(st.lists(st.integers(0, 999), min_size=8, max_size=8)))
            getattr(self, action)()

    @invariant()
    def agrees(self) -> None:
        self.model.check(self.scene.all(), self.do("counts"), self.do("paused"))

    def do(self, name: str, *arguments: Any, **options: Any) -> Any:
        return self.scene.do(name, *arguments, **options)

    def pick(self, options: Sequence[T]) -> T:
        return options[next(self.numbers) % len(options)]

    def new_id(self) -> UUID:
        return UUID(int=self.chance.getrandbits(128), version=4)

    def tell(self, *words: object) -> None:
        self.story.append(" ".join(word.hex[:6] if isinstance(word, UUID) else str(word) for word in words))

    def learn_time(self, mine: ModelJob, job: Job | None = None) -> None:
        """When the store made it due, which must be about when the model did."""
        job = job or self.scene.job(mine.id)
        assert abs(job.run_at - mine.run_at) < SLACK
        mine.run_at = job.run_at

    # Enqueueing

    def enqueue(self, jobs: list[NewJob]) -> None:
        batch = [job if job.id_given else msgspec.structs.replace(job, id=self.new_id()) for job in jobs]
        self.send(batch)
        self.sent.append(batch)

    def enqueue_again(self) -> None:
        """Whose answer was lost."""
        if self.sent:
            self.send(self.pick(self.sent), resent=True)

    def send(self, batch: list[NewJob], resent: bool = False) -> None:
        for job in batch:
            key = f"unique {job.unique_key!r} until {job.unique_until}, {job.on_conflict}" if job.unique_key else ""
            self.tell("enqueue", job.id, "again" * resent, job.queue, job.tenant, f"rank {job.rank}", key)
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

    def claim(self) -> None:
        queue, limit, lease = self.pick(QUEUES), self.pick([1, 2, 3, 4]), self.pick(LEASES)
        prefetch = self.pick([False, False, False, True])
        request = self.scene.request(queue=queue, limit=limit, prefetch=prefetch, lease_seconds=lease)
        expected = self.model.claimable(queue, limit, prefetch)
        jobs = self.do("claim", request)
        self.tell("claim", limit, "of", queue, "for", lease, "s", "ahead" * prefetch, [job.id.hex[:6] for job in jobs])
        if prefetch and jobs:  # where last attempts are passed over, it may be content with fewer
            expected = expected[: len(jobs)]
        self.model.claim(expected, request.token, lease)
        assert [job.id for job in jobs] == [mine.id for mine in expected]
        assert [(job.state, job.attempt) for job in jobs] == [(mine.state, mine.attempt) for mine in expected]
        self.claims += [Held(job, request.token) for job in jobs]

    def some_claims(self, count: int) -> list[Held]:
        """Different ones, and mostly of those who still hold their job."""
        holding = [held for held in self.claims if self.model.holds(held.job.id, held.token)]
        some = [self.pick(self.pick([holding, holding, self.claims]) or self.claims) for _ in range(count)]
        return list({(held.job.id, held.token): held for held in some}.values())

    def settle(self) -> None:
        if not self.claims:
            return self.claim()
        (held,), outcome = self.some_claims(1), self.pick(OUTCOMES)
        if outcome == "give back":
            settlement = give_back(held.job, held.token)
        else:
            settlement = decide(held.job, held.token, RESULTS[outcome], random=self.chance.random)
        reason, mine = self.model.refusal(settlement), self.model.jobs.get(held.job.id)
        refusals = self.do("settle", [settlement])
        self.tell("settle", held.job.id, "by", held.token, outcome, settlement.state, *refusals)
        assert refusals == ([Refusal(held.job.id, reason, held.token)] if reason else [])
        if mine is not None and self.model.holds(held.job.id, held.token):
            self.model.settle(settlement)
            if mine.state == "pending":
                self.learn_time(mine)

    def complete_many(self) -> None:
        several = self.some_claims(3) if self.claims else []
        settlements = [decide(held.job, held.token, "2", random=self.chance.random) for held in several]
        expected = []
        for settlement, held in zip(settlements, several, strict=True):
            self.tell("complete", held.job.id, "by", held.token)
            if (reason := self.model.refusal(settlement)) is not None:
                expected.append((settlement.id, settlement.token, reason))
            elif self.model.holds(held.job.id, held.token):
                self.model.settle(settlement)
        refusals = self.do("settle", settlements)
        assert sorted((refusal.id, refusal.token, refusal.reason) for refusal in refusals) == sorted(expected)

    def renew(self) -> None:
        seconds, several = self.pick(LEASES), self.some_claims(3) if self.claims else []
        renewals = self.do("renew", [Lease(held.job.id, held.token, seconds) for held in several])
        for held, renewal in zip(several, renewals, strict=True):
            self.tell("renew", held.job.id, "by", held.token, "for", seconds, "s")
            assert (renewal.expires_at is not None) == self.model.renew(held.job.id, held.token, seconds)
            if renewal.expires_at is not None:
                assert renewal.cancel_requested == self.model.jobs[held.job.id].cancel_requested

    def crash(self) -> None:
        """The workers forget what they held."""
        self.tell("crash")
        self.claims.clear()

    # What people do

    def act(self) -> None:
        event: Event = self.pick(EVENTS)
        able = [id for id, mine in self.model.jobs.items() if allows(event, mine.state)]
        ids = sorted({self.pick(self.pick([able, self.known]) or self.known) for _ in range(self.pick([1, 2]))})
        expected = [self.model.act(event, id) for id in ids]
        changes = self.do(OPERATIONS.get(event, event), ids)
        self.tell(event, *ids, [(change.done, change.state) for change in changes])
        assert [(change.done, change.state) for change in changes] == expected
        for change in changes:
            if change.done and change.state == "pending" and event != "delete":
                self.learn_time(self.model.jobs[change.id])

    def pause_or_resume(self) -> None:
        paused = self.pick([set[str](), {"one"}, {"one", "two"}])
        self.tell("pause only", *sorted(paused))
        for queue in sorted(paused ^ self.model.paused):
            self.do("pause" if queue in paused else "resume", queue)
        self.model.paused = paused

    # Time

    def wait(self) -> None:
        seconds, upkeep = self.pick(MOVES), self.pick(["rescue", "rescue", "prune", "expire", "nothing"])
        self.tell("wait", seconds, "s, then", upkeep)
        self.store.clock.move(timedelta(seconds=seconds))
        self.model.offset += timedelta(seconds=seconds)
        if upkeep != "nothing":
            getattr(self, upkeep)()

    def rescue(self) -> None:
        expired = {mine.id: mine for mine in self.model.expired()}
        settlements = self.do("rescue", 100)
        assert {one.id for one in settlements} == expired.keys()
        for settlement in settlements:
            mine = expired[settlement.id]
            self.tell("rescued", mine.id, settlement.state)
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

    def expire(self) -> None:
        late = {mine.id: mine for mine in self.model.too_late()}
        ended = [one.id for some in iter(lambda: self.do("expire", 2), []) for one in some]
        self.tell("expired", *ended)
        assert sorted(ended) == sorted(late)
        for mine in late.values():
            self.model.expire(mine)

    def prune(self) -> None:
        gone, late = self.model.to_prune()
        pruned = sum(iter(lambda: self.do("prune", 2), 0))
        gone |= late - {job.id for job in self.scene.all()}
        self.tell("pruned", *gone)
        for id in gone:
            del self.model.jobs[id]
        assert pruned == len(gone)

"""A queue that is driven by chance, on a store and on the model at once."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any, TypeVar
from uuid import UUID

import msgspec
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from windlass.errors import Conflict, InvalidInput, JobNotFound
from windlass.job import Job, NewJob
from windlass.lifecycle import BLOCKED, LIVE, Event, allows
from windlass.outcome import Settlement, decide, give_back
from windlass.stores.store import Lease, Refusal, Store, may_be_handed_over

from .dependents import Missing
from .drawn import (
    ACTIONS,
    BATCHES,
    EVENTS,
    HANGING,
    LEASES,
    MOVES,
    OPERATIONS,
    OUTCOMES,
    QUEUES,
    RESULTS,
    Hanging,
    hanging_jobs,
)  # fmt: skip
from .empty_store import empty
from .model import Model, Taken
from .scene import Scene

T = TypeVar("T")

SLACK = timedelta(seconds=10)  # how long an operation may take
STAGGER = 10.0  # the most that a rescue adds


class Held(msgspec.Struct, frozen=True):
    job: Job
    token: UUID


def short(id: UUID) -> str:
    return id.hex[:6] if id.int > 99 else f"job {id.int}"


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
            return
        drawn: list[Any] = [data.draw(HANGING)] if action == "enqueue_hanging" else []
        drawn += [data.draw(hanging_jobs())] if action == "go_on" else []
        self.numbers = iter(data.draw(st.lists(st.integers(0, 999), min_size=8, max_size=8)))
        getattr(self, action)(*drawn)

    @invariant()
    def agrees(self) -> None:
        found = self.scene.all()
        self.model.learn(found, SLACK)
        self.model.check(found, self.do("counts"), self.do("paused"))
        waiting = [mine.id for mine in self.model.waiting_for_others()]
        self.model.check_blockers(self.do("blockers", waiting) if waiting else {})
        for line in self.model.lines():
            head, mine = self.do("head", *line), self.model.head(line)
            assert (head and head.id) == (mine and mine.id), f"at the head of {line}"

    def do(self, name: str, *arguments: Any, **options: Any) -> Any:
        return self.scene.do(name, *arguments, **options)

    def pick(self, options: Sequence[T]) -> T:
        return options[next(self.numbers) % len(options)]

    def new_id(self) -> UUID:
        return UUID(int=self.chance.getrandbits(128), version=4)

    def tell(self, *words: object) -> None:
        self.story.append(" ".join(short(word) if isinstance(word, UUID) else str(word) for word in words))

    # Enqueueing

    def enqueue(self, jobs: list[NewJob]) -> None:
        batch = [job if job.id_given else msgspec.structs.replace(job, id=self.new_id()) for job in jobs]
        self.send(batch)
        self.sent.append(batch)

    def enqueue_hanging(self, jobs: list[Hanging]) -> None:
        """Jobs with order keys and jobs that wait for others: for what is there, or for what comes before them in the
        batch. Whoever has enqueued them lets them in."""
        batch: list[NewJob] = []
        for one in jobs:
            batch.append(self.hang(one, self.new_id(), before=[new.id for new in batch]))
        self.send(batch)
        self.sent.append(batch)
        self.admit()

    def hang(self, one: Hanging, id: UUID, before: Sequence[UUID] = (), **more: Any) -> NewJob:
        there = [*self.model.jobs, *before] or self.known
        live = [id for id, mine in self.model.jobs.items() if mine.state in LIVE] or there
        chosen = [some[number % len(some)] for number in one.awaited for some in ([live, there][number % 2],)]
        if sum(one.awaited) % 16 == 1:
            chosen.append(self.known[one.awaited[0] % len(self.known)])  # one that may be gone
        if one.job.order_key is None and not chosen:
            return msgspec.structs.replace(one.job, id=id, **more)
        state = BLOCKED if chosen else one.job.state
        return msgspec.structs.replace(one.job, id=id, blockers=tuple(chosen), state=state, **more)

    def admit(self) -> None:
        """As every worker does it, until nobody is on the way in."""
        self.model.learn(self.do("get", sorted(self.model.retimed)), SLACK)
        self.tell("admit")
        while self.do("admit", 2).jobs:
            pass
        self.model.admit()

    def enqueue_again(self) -> None:
        """Whose answer was lost."""
        if self.sent:
            self.send(self.pick(self.sent), resent=True)
            self.admit()

    def send(self, batch: list[NewJob], resent: bool = False) -> None:
        if any(self.model.is_missed(job.id) for job in batch):
            return  # nothing is said of a job that comes again when its chain, or those that wait for it, remember it
        for job in batch:
            key = f"unique {job.unique_key!r} until {job.unique_until}, {job.on_conflict}" if job.unique_key else ""
            key += f" in line {job.order_key!r}" if job.order_key else ""
            key += f" after {[short(one) for one in job.blockers]}" if job.blockers else ""
            self.tell("enqueue", job.id, "again" * resent, job.queue, job.tenant, f"rank {job.rank}", key)
        try:
            expected = self.model.enqueue(batch)
        except Taken:
            with pytest.raises(Conflict):
                self.do("enqueue", batch, resent=resent)
            return
        except Missing:
            with pytest.raises(JobNotFound):
                self.do("enqueue", batch, resent=resent)
            return
        answers = self.do("enqueue", batch, resent=resent)
        assert [(answer.job.id, answer.created) for answer in answers] == expected
        self.known += [id for id, created in expected if created and id not in self.known]

    # A job's way

    def claim(self) -> None:
        if self.pick([True, True, True, False]):
            self.admit()
        queue, limit, lease = self.pick(QUEUES), self.pick([1, 2, 3, 4]), self.pick(LEASES)
        prefetch = self.pick([False, False, False, True])
        request = self.scene.request(queue=queue, limit=limit, prefetch=prefetch, lease_seconds=lease)
        expected = self.model.claimable(queue, limit, prefetch)
        jobs = self.do("claim", request)
        self.tell("claim", limit, "of", queue, "for", lease, "s", "ahead" * prefetch, [short(job.id) for job in jobs])
        if prefetch and jobs:  # where last attempts are passed over, it may be content with fewer
            expected = expected[: len(jobs)]
        self.model.claim(expected, request.token, lease)
        assert [job.id for job in jobs] == [mine.id for mine in expected]
        assert [(job.state, job.attempt) for job in jobs] == [(mine.state, mine.attempt) for mine in expected]
        self.claims += [Held(job, request.token) for job in jobs]

    def some_claims(self, count: int) -> list[Held]:
        """Different ones, and mostly of those who still hold their job, best one that others wait for."""
        holding = [held for held in self.claims if self.model.holds(held.job.id, held.token)]
        awaited = [held for held in holding if self.model.is_awaited(held.job.chain_id)] or holding
        kinds = [awaited, holding, self.claims]
        some = [self.pick(self.pick(kinds) or self.claims) for _ in range(count)]
        return list({(held.job.id, held.token): held for held in some}.values())

    def settle(self) -> None:
        if not self.claims:
            return self.claim()
        (held,), outcome = self.some_claims(1), self.pick(OUTCOMES)
        if outcome == "give back":
            settlement = give_back(held.job, held.token)
        else:
            settlement = decide(held.job, held.token, RESULTS[outcome], random=self.chance.random)
        self.tell("settle", held.job.id, "by", held.token, outcome, settlement.state)
        self.end(held, settlement)

    def go_on(self, drawn: Hanging) -> None:
        """The job completes, and its chain continues with another."""
        if not self.claims:
            return self.claim()
        (held,) = self.some_claims(1)
        chain = held.job.chain_id
        keep = held.job.policy.keep_seconds if held.job.policy else None  # else a chain's end could go before the rest
        new = self.hang(drawn, self.new_id(), chain_id=chain, chain_index=held.job.chain_index + 1, keep_seconds=keep)
        others = tuple(id for id in new.blockers if id in self.model.jobs and self.model.jobs[id].chain_id != chain)
        new = msgspec.structs.replace(new, blockers=others, state=BLOCKED if others else "pending")
        new = msgspec.structs.replace(new, lease_seconds=60.0)
        completed = decide(held.job, held.token, "3", random=self.chance.random)
        settlement = msgspec.structs.replace(completed, output=None, continues=new)
        self.tell("go on", held.job.id, "by", held.token, "with", new.id, f"in line {new.order_key}", "after", *others)
        if self.model.holds(held.job.id, held.token):
            if self.model.would_circle(chain, others):
                self.tell("would wait for itself")
                with pytest.raises(InvalidInput):
                    self.do("settle", [settlement])
                return
            self.known.append(new.id)
        if may_be_handed_over(new) and self.pick([True, False]):
            self.hand_over(held, settlement, new)
        else:
            self.end(held, settlement)
        self.admit()

    def hand_over(self, held: Held, settlement: Settlement, new: NewJob) -> None:
        """The same, and whoever completes has the next at once."""
        reason, token = self.model.refusal(settlement), self.new_id()
        done = self.do("hand_over", settlement, token, "one")
        assert done.refusals == ([Refusal(held.job.id, reason, held.token)] if reason else [])
        if not self.model.holds(held.job.id, held.token):
            assert done.job is None
            return
        self.model.settle(settlement)
        if new.queue in self.model.paused:
            assert done.job is None
            return
        self.tell("which it has")
        mine = self.model.jobs[new.id]
        self.model.claim([mine], token, 60.0)
        assert (done.job.id, done.job.state, done.job.attempt) == (mine.id, mine.state, mine.attempt)
        self.claims.append(Held(done.job, token))

    def end(self, held: Held, settlement: Settlement) -> None:
        reason = self.model.refusal(settlement)
        refusals = self.do("settle", [settlement])
        if refusals:
            self.tell("refused:", refusals[0].reason)
        assert refusals == ([Refusal(held.job.id, reason, held.token)] if reason else [])
        if self.model.holds(held.job.id, held.token):
            self.model.settle(settlement)

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
        awaited = [id for id in able if self.model.is_awaited(self.model.jobs[id].chain_id)] or able
        kinds = [awaited, able, self.known]
        ids = sorted({self.pick(self.pick(kinds) or self.known) for _ in range(self.pick([1, 2]))})
        if event == "delete" and self.pick([True, False]):  # with what they wait for
            there = [self.model.jobs[id] for id in ids if id in self.model.jobs]
            ids = sorted({*ids, *(edge.chain for mine in there for edge in mine.undone)})
        expected = self.model.delete(ids) if event == "delete" else [self.model.act(event, id) for id in ids]
        changes = self.do(OPERATIONS.get(event, event), ids)
        self.tell(event, *ids, [(change.done, change.state) for change in changes])
        assert [(change.done, change.state) for change in changes] == expected
        if event == "bring back":
            self.admit()

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

"""`claim` and `adopt`: the order of claims, and the fields that a claim writes."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest

from ..backoff import Fixed
from ..policy import UNLIMITED, Policy
from ..stores.store import Position
from .bench import BY_NAME, POLICY, Bench, Held, columns, new_job

KILOBYTE = '{"text":"' + "x" * 989 + '"}'  # 1000 bytes


def ids(claimed: list[Held]) -> list[UUID]:
    return [held.id for held in claimed]


class Order:
    def test_by_priority_then_due_time_then_id(self, bench: Bench) -> None:
        soon = datetime.now(UTC) + timedelta(hours=1)
        jobs = [
            new_job(priority=priority, run_at=soon + timedelta(hours=hour))
            for priority in (100, 1, 0, -100)
            for hour in (0, 1)
            for _ in range(3)
        ]
        shuffled = random.Random(3).sample(jobs, len(jobs))
        bench.enqueue(*shuffled)
        bench.pass_time(hours=3)
        claimed = [held for limit in (1, 7, 100) for held in bench.claim(limit)]
        assert ids(claimed) == [job.id for job in jobs]

    def test_at_most_as_many_as_asked_for(self, bench: Bench) -> None:
        jobs = bench.add_many(5)
        assert ids(bench.claim(2)) == [job.id for job in jobs[:2]]
        assert ids(bench.claim(10)) == [job.id for job in jobs[2:]]
        assert bench.claim(10) == []

    def test_hundreds_at_once(self, bench: Bench) -> None:
        jobs = bench.add_many(600)
        assert ids(bench.claim(500)) == [job.id for job in jobs[:500]]

    def test_not_before_it_is_due(self, bench: Bench) -> None:
        job = bench.add(delay_seconds=60, priority=100)
        assert bench.claim() == []
        bench.pass_time(seconds=30)
        assert bench.claim() == []
        bench.pass_time(seconds=31)
        assert ids(bench.claim()) == [job.id]

    def test_what_is_not_due_holds_up_nothing_behind_it(self, bench: Bench) -> None:
        bench.add_many(5, delay_seconds=60, priority=100)
        due = bench.add()
        assert ids(bench.claim(1)) == [due.id]

    def test_what_has_expired_is_not_taken(self, bench: Bench) -> None:
        bench.add(expires_seconds=60, priority=1)
        lasting = bench.add(expires_seconds=600)
        bench.pass_time(seconds=61)
        assert ids(bench.claim()) == [lasting.id]

    def test_only_of_the_queue_that_was_named(self, bench: Bench) -> None:
        bench.add(queue="other")
        job = bench.add(queue="mine")
        assert ids(bench.claim(queue="mine")) == [job.id]
        assert bench.claim(queue="none such") == []

    def test_only_of_the_types_that_were_named(self, bench: Bench) -> None:
        jobs = {name: bench.add(type=name) for name in ("a", "b", "c")}
        assert bench.claim(types=[]) == []
        assert ids(bench.claim(types=["b", "unheard of"])) == [jobs["b"].id]
        assert ids(bench.claim()) == [jobs["a"].id, jobs["c"].id]

    def test_an_unknown_type_waits_and_holds_up_nothing(self, bench: Bench) -> None:
        unknown = bench.add_many(20, type="unknown", priority=100)
        known = bench.add(type="known")
        assert ids(bench.claim(1, types=["known"])) == [known.id]
        assert bench.claim(types=["known"]) == []
        assert {bench.look(job).state for job in unknown} == {"pending"}

    def test_from_the_position_where_a_claim_left_off(self, bench: Bench) -> None:
        soon = datetime.now(UTC) + timedelta(hours=1)
        early = bench.add_many(3, run_at=soon)
        late = bench.add_many(3, run_at=soon + timedelta(hours=1))
        low = bench.add_many(3, priority=-5, run_at=soon)
        bench.pass_time(hours=3)
        position = Position(rank=0, run_at=late[0].run_at, id=late[0].id)
        assert ids(bench.claim(after=position)) == [job.id for job in [*late[1:], *low]]
        assert bench.claim(after=position) == []
        assert ids(bench.claim()) == [job.id for job in [*early, late[0]]]

    def test_of_many_claimers_none_gets_what_another_has(self, bench: Bench) -> None:
        jobs = bench.add_many(200)

        def drain(_: int) -> list[UUID]:
            return [held.id for claimed in iter(lambda: bench.claim(7), []) for held in claimed]

        taken = [id for some in bench.at_once(6, drain) for id in some]
        # A claimer that found only locked rows may have stopped early, so claim the rest. No job was claimed twice.
        taken += ids(bench.claim(1000))
        assert sorted(taken) == [job.id for job in jobs]


class Claims:
    def test_a_claimed_job_is_running_and_says_whose_it_is(self, bench: Bench) -> None:
        bench.pass_time(hours=1)
        job = bench.add(lease_seconds=90)
        held = bench.claim_one(worker="host:1")
        for read in (held.job, bench.look(job)):
            assert (read.state, read.attempt, read.worker) == ("running", 1, "host:1")
            assert read.claimed_at is not None
            assert read.lease_expires_at is not None
            assert read.claimed_at >= job.created_at
            assert read.lease_expires_at - read.claimed_at == timedelta(seconds=90)

    def test_the_attempt_is_counted_when_it_is_claimed(self, bench: Bench) -> None:
        bench.add()
        for number in (1, 2, 3):
            held = bench.claim_one()
            assert held.job.attempt == bench.look(held).attempt == number
            bench.send_back(held)
            assert bench.look(held).attempt == number

    def test_the_token_of_the_request_is_on_every_row(self, bench: Bench) -> None:
        bench.add_many(20)
        first, second = bench.claim(12), bench.claim(12)
        for claimed in (first, second):
            adopted = bench.run(lambda token=claimed[0].token: bench.store.adopt(token))  # type: ignore[misc]
            assert sorted(job.id for job in adopted) == ids(claimed)
            assert {job.state for job in adopted} == {"running"}
        bench.accept(*(held.completes() for held in first))
        assert bench.run(lambda: bench.store.adopt(first[0].token)) == []
        assert bench.run(lambda: bench.store.adopt(uuid4())) == []

    def test_a_lease_that_the_claimer_asks_for_is_for_this_attempt_alone(self, bench: Bench) -> None:
        bench.add(lease_seconds=90)
        held = bench.claim_one(lease_seconds=5)
        assert lease(held) == timedelta(seconds=5)
        bench.send_back(held)
        assert lease(bench.claim_one()) == timedelta(seconds=90)


class Policies:
    """A job that was enqueued by name alone gets its policy from the first claim."""

    SLOW = Policy(max_attempts=2, lease_seconds=300, keep_seconds=100, backoff=Fixed(7), timeout_seconds=5)
    OTHER = Policy(max_attempts=UNLIMITED, lease_seconds=1, keep_seconds=-1)

    def test_by_its_type_else_the_default(self, bench: Bench) -> None:
        slow, rest = bench.add(type="slow", **BY_NAME), bench.add(type="rest", **BY_NAME)
        claimed = bench.claim(policies={"slow": self.SLOW}, default_policy=self.OTHER)
        assert [held.job.policy for held in claimed] == [self.SLOW, self.OTHER]
        assert [lease(held) for held in claimed] == [timedelta(seconds=300), timedelta(seconds=1)]
        assert bench.look(slow).policy == self.SLOW
        assert bench.look(rest).policy == self.OTHER

    def test_what_the_job_brought_along_goes_first(self, bench: Bench) -> None:
        bench.add(type="slow")
        held = bench.claim_one(policies={"slow": self.SLOW}, default_policy=self.OTHER)
        assert held.job.policy == POLICY

    def test_what_the_job_did_not_say_is_filled_in(self, bench: Bench) -> None:
        bench.add(type="slow", **BY_NAME | {"max_attempts": 9, "keep_seconds": 0})
        policy = bench.claim_one(policies={"slow": self.SLOW}).job.policy
        assert policy is not None
        assert (policy.max_attempts, policy.keep_seconds) == (9, 0)
        assert (policy.lease_seconds, policy.backoff, policy.timeout_seconds) == (300, Fixed(7), 5)

    @pytest.mark.parametrize("ended", [False, True], ids=["first claim", "after a retry"])
    def test_a_known_task_without_keep_gets_none_from_the_claimer(self, bench: Bench, ended: bool) -> None:
        not_kept = {"task": Policy(keep_seconds=0)}
        job = bench.finish("failed", keep_seconds=None) if ended else bench.add(keep_seconds=None)
        if ended:
            bench.retry(job)
        held = bench.claim_one(queue=job.queue, policies=not_kept, default_policy=not_kept["task"])
        assert held.job.policy is not None
        assert held.job.policy.keep_seconds is None
        bench.accept(held.completes())
        assert bench.look(job).state == "completed"

    def test_a_task_without_keep_leaves_it_open(self, bench: Bench) -> None:
        bench.add(type="slow", **BY_NAME)
        bench.send_back(bench.claim_one(policies={"slow": Policy()}))
        held = bench.claim_one(policies={"slow": self.SLOW})
        assert held.job.policy == Policy()
        bench.accept(held.completes())
        assert bench.look(held).state == "completed"

    def test_a_backoff_of_its_own_stays_where_the_lease_is_filled_in(self, bench: Bench) -> None:
        bench.add(type="slow", lease_seconds=None)
        policy = bench.claim_one(policies={"slow": self.SLOW}).job.policy
        assert policy is not None
        assert (policy.lease_seconds, policy.backoff) == (300, POLICY.backoff)

    def test_once_given_it_stays(self, bench: Bench) -> None:
        bench.add(type="slow", **BY_NAME)
        bench.send_back(bench.claim_one(policies={"slow": self.SLOW}))
        assert bench.claim_one(policies={"slow": self.OTHER}).job.policy == self.SLOW

    def test_a_lease_that_the_claimer_asks_for_is_not_part_of_it(self, bench: Bench) -> None:
        bench.add(type="slow", **BY_NAME)
        held = bench.claim_one(policies={"slow": self.SLOW}, lease_seconds=5)
        assert lease(held) == timedelta(seconds=5)
        bench.send_back(held)
        assert lease(bench.claim_one()) == timedelta(seconds=300)


class Bounds:
    def test_no_more_bytes_than_asked_for(self, bench: Bench) -> None:
        bench.add_many(5, input=KILOBYTE)
        assert len(bench.claim(max_bytes=2500)) == 2
        assert len(bench.claim(max_bytes=100_000)) == 3

    def test_at_least_one_however_large(self, bench: Bench) -> None:
        bench.add_many(3, input=KILOBYTE)
        assert len(bench.claim(max_bytes=10)) == 1
        assert len(bench.claim(max_bytes=1)) == 1

    def test_bytes_are_counted_and_not_characters(self, bench: Bench) -> None:
        bench.add_many(5, input='{"text":"' + "日" * 300 + '"}')
        assert len(bench.claim(max_bytes=2000)) == 2

    def test_what_fits_behind_a_large_one_waits_for_its_turn(self, bench: Bench) -> None:
        small, large, behind = (bench.add(input=text) for text in ("{}", KILOBYTE, "{}"))
        assert ids(bench.claim(max_bytes=500)) == [small.id]
        assert ids(bench.claim(max_bytes=2000)) == [large.id, behind.id]


class Prefetching:
    """A prefetch never claims the last attempt of a job."""

    def test_a_last_attempt_is_left_for_a_free_slot(self, bench: Bench) -> None:
        once = bench.add(max_attempts=1)
        assert bench.claim(prefetch=True) == []
        assert bench.look(once).attempt == 0
        assert ids(bench.claim()) == [once.id]

    def test_an_attempt_that_became_the_last_is_left_too(self, bench: Bench) -> None:
        bench.add(max_attempts=2)
        (held,) = bench.claim(prefetch=True)
        bench.send_back(held)
        assert bench.claim(prefetch=True) == []
        assert bench.claim_one().job.attempt == 2

    def test_a_job_without_a_limit_has_no_last_attempt(self, bench: Bench) -> None:
        bench.add(max_attempts=UNLIMITED)
        for _ in range(5):
            (held,) = bench.claim(prefetch=True)
            bench.send_back(held)

    def test_a_policy_that_the_claimer_brings_counts(self, bench: Bench) -> None:
        once, more = bench.add(type="once", **BY_NAME), bench.add(type="more", **BY_NAME)
        policies = {"once": Policy(max_attempts=1)}
        assert ids(bench.claim(prefetch=True, policies=policies)) == [more.id]
        assert ids(bench.claim(policies=policies)) == [once.id]

    @pytest.mark.parametrize("limit", [1, 2, 10])
    def test_last_attempts_do_not_keep_it_from_what_is_behind_them(self, bench: Bench, limit: int) -> None:
        bench.add_many(15, max_attempts=1)
        behind = bench.add_many(4)
        claimed = [held for some in iter(lambda: bench.claim(limit, prefetch=True), []) for held in some]
        assert ids(claimed) == [job.id for job in behind]

    def test_what_it_passes_over_does_not_count_for_its_bounds(self, bench: Bench) -> None:
        bench.enqueue(new_job(input=KILOBYTE, **columns(Policy(max_attempts=1))))
        behind = bench.add_many(2, input=KILOBYTE)
        assert ids(bench.claim(prefetch=True, max_bytes=2500)) == [job.id for job in behind]


def lease(held: Held) -> timedelta:
    """The length of the job's lease."""
    assert held.job.lease_expires_at is not None
    assert held.job.claimed_at is not None
    return held.job.lease_expires_at - held.job.claimed_at

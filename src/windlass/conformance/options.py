"""Options that are given at enqueue override the task's, option by option."""

from __future__ import annotations

from datetime import timedelta
from itertools import combinations
from typing import Any

import pytest
from uuid_utils.compat import uuid7

from ..backoff import Fixed
from ..call import NO_OPTIONS, Call
from ..job import Job, NewJob
from ..policy import Policy
from .bench import Bench
from .chains import next_of

SLOW = Policy(
    max_attempts=5, lease_seconds=300, keep_seconds=100, backoff=Fixed(7), timeout_seconds=50, redact=("secret",)
)
PLAIN = Policy(max_attempts=3, lease_seconds=30, keep_seconds=1000)
GIVEN: dict[str, tuple[Any, str, Any]] = {
    "max_attempts": (10, "max_attempts", 10),
    "lease": ("90s", "lease_seconds", 90.0),
    "keep": ("1h", "keep_seconds", 3600),
    "backoff": ("20s", "backoff", Fixed(20)),
    "timeout": ("2s", "timeout_seconds", 2.0),
}
CHOICES = [names for count in (1, 2, 3, 5) for names in combinations(GIVEN, count)]


def by_name(**options: Any) -> NewJob:
    """A job that was enqueued by name: its caller does not know the task."""
    return Call(type="slow", input="{}", options=NO_OPTIONS.updated(options)).new_job(uuid7)


def add(bench: Bench, **options: Any) -> Job:
    (answer,) = bench.enqueue(by_name(**options))
    return answer.job


class GivenOptions:
    @pytest.mark.parametrize("task", [SLOW, PLAIN], ids=["slow", "plain"])
    @pytest.mark.parametrize("names", CHOICES, ids="-".join)
    def test_what_is_not_given_is_the_tasks(self, bench: Bench, names: tuple[str, ...], task: Policy) -> None:
        add(bench, **{name: GIVEN[name][0] for name in names})
        held = bench.claim_one(policies={"slow": task})
        expected = {field: getattr(task, field) for field in task.__struct_fields__}
        expected |= {field: value for _, field, value in (GIVEN[name] for name in names)}
        assert held.job.policy == bench.look(held).policy == Policy(**expected)
        assert held.job.lease_expires_at is not None
        assert held.job.claimed_at is not None
        length = held.job.lease_expires_at - held.job.claimed_at
        assert abs(length - timedelta(seconds=expected["lease_seconds"])) < timedelta(milliseconds=2)

    def test_no_timeout_can_be_given(self, bench: Bench) -> None:
        add(bench, timeout=None, max_attempts=None)
        policy = bench.claim_one(policies={"slow": SLOW}).job.policy
        assert policy is not None
        assert (policy.timeout_seconds, policy.max_attempts, policy.backoff) == (None, 0, Fixed(7))

    def test_once_filled_in_it_stays(self, bench: Bench) -> None:
        add(bench, max_attempts=10, lease=90, keep=50)
        first = bench.claim_one(policies={"slow": SLOW})
        bench.send_back(first)
        assert bench.claim_one(policies={"slow": PLAIN}).job.policy == first.job.policy

    def test_in_a_batch_each_has_its_own(self, bench: Bench) -> None:
        given = [{}, {"backoff": 1}, {"backoff": 2}, {"lease": 5}, {"timeout": 9}]
        bench.enqueue(*(by_name(**options) for options in given))
        policies = [held.job.policy for held in bench.claim(policies={"slow": SLOW})]
        found = [(one.backoff, one.lease_seconds, one.timeout_seconds) for one in policies if one is not None]
        assert found == [
            (Fixed(7), 300, 50),
            (Fixed(1), 300, 50),
            (Fixed(2), 300, 50),
            (Fixed(7), 5, 50),
            (Fixed(7), 300, 9),
        ]

    def test_it_is_rescued_when_the_tasks_own_lease_is_over(self, bench: Bench) -> None:
        job = add(bench, max_attempts=10)
        bench.claim_one(policies={"slow": Policy(lease_seconds=2)})
        bench.pass_time(seconds=1)
        assert bench.rescue() == []
        bench.pass_time(seconds=2)
        assert [one.id for one in bench.rescue()] == [job.id]
        assert bench.look(job).max_attempts == 10

    def test_the_last_attempt_is_known_before_it_is_filled_in(self, bench: Bench) -> None:
        add(bench, lease=90)
        assert bench.claim(prefetch=True, policies={"slow": Policy(max_attempts=1)}) == []
        assert len(bench.claim(prefetch=True, policies={"slow": SLOW})) == 1

    def test_what_is_not_known_yet_is_not_handed_over(self, bench: Bench) -> None:
        held = bench.hold()
        following = by_name(lease=90)
        settlement = held.completes()
        chained = next_of(
            held, **{name: getattr(following, name) for name in ("max_attempts", "lease_seconds", "policy")}
        )
        chained.keep_seconds, chained.type = None, "slow"
        settlement = type(settlement)(id=held.id, token=held.token, state="completed", continues=chained)
        assert bench.run(lambda: bench.store.hand_over(settlement, uuid7(), "worker")).job is None
        assert bench.claim_one(policies={"slow": SLOW}).job.policy == Policy(
            **{field: getattr(SLOW, field) for field in SLOW.__struct_fields__} | {"lease_seconds": 90}
        )

    def test_what_is_cancelled_and_brought_back_still_gets_the_rest(self, bench: Bench) -> None:
        job = add(bench, max_attempts=10)
        bench.cancel(job)
        bench.retry(job)
        policy = bench.claim_one(policies={"slow": SLOW}).job.policy
        assert policy is not None
        assert (policy.max_attempts, policy.lease_seconds, policy.keep_seconds) == (10, 300, 100)

    def test_what_is_said_of_retention_counts_before_any_claim(self, bench: Bench) -> None:
        job = add(bench, keep=0)
        assert job.policy is not None
        assert (job.policy.keep_seconds, job.max_attempts) == (0, None)
        bench.cancel(job)
        assert bench.get(job.id) == []

"""`rescue`: the jobs of dead workers become pending, fail or are cancelled. No other job changes."""

from __future__ import annotations

from datetime import timedelta

import pytest

from ..backoff import Fixed
from ..lifecycle import PENDING
from ..outcome import Settlement
from ..policy import UNLIMITED, Policy
from .bench import Bench, columns


class Rescuing:
    def test_one_look_tells_whether_anyone_is_lost(self, bench: Bench) -> None:
        def anyone_lost() -> bool:
            return bench.run(bench.store.anyone_lost)

        assert not anyone_lost()
        held = bench.hold()
        assert not anyone_lost()
        bench.pass_time(minutes=10)
        assert anyone_lost()
        bench.accept(held.completes())
        assert not anyone_lost()

    def test_a_job_whose_lease_ran_out_comes_back_by_its_backoff(self, bench: Bench) -> None:
        held = bench.hold(**columns(Policy(max_attempts=3, lease_seconds=60, backoff=Fixed(600))))
        bench.pass_time(seconds=61)
        (settlement,) = bench.rescue()
        assert (settlement.id, settlement.state) == (held.id, "pending")
        job = bench.look(held)
        assert (job.state, job.attempt, job.worker, job.lease_expires_at) == ("pending", 1, None, None)
        assert "LeaseExpired" in str(job.error)
        assert [(one.number, one.worker) for one in job.attempts] == [(1, "worker")]
        assert timedelta(seconds=600) <= job.run_at - held.job.run_at < timedelta(seconds=700)
        bench.pass_time(seconds=630)
        assert bench.claim_one(queue=job.queue).job.attempt == 2

    def test_a_job_within_its_lease_is_left_alone(self, bench: Bench) -> None:
        held = bench.hold(lease_seconds=60)
        bench.add()
        bench.finish()
        bench.pass_time(seconds=30)
        assert bench.rescue() == []
        bench.accept(held.completes())

    def test_the_last_attempt_fails(self, bench: Bench) -> None:
        held = bench.hold(max_attempts=1)
        bench.pass_time(seconds=61)
        (settlement,) = bench.rescue()
        assert (settlement.id, settlement.state) == (held.id, "failed")
        job = bench.look(held)
        assert (job.state, job.attempt) == ("failed", 1)
        assert "LeaseExpired" in str(job.error)
        assert bench.counts().failed == 1

    def test_a_job_that_kills_its_worker_is_failed_after_its_attempts(self, bench: Bench) -> None:
        job = bench.add(max_attempts=3)
        for number in (1, 2, 3):
            assert bench.claim_one().job.attempt == number
            bench.pass_time(minutes=5)
            bench.rescue()
            bench.pass_time(minutes=5)
        assert bench.claim() == []
        assert bench.look(job).state == "failed"

    def test_a_job_without_a_limit_comes_back_ever_again(self, bench: Bench) -> None:
        job = bench.add(max_attempts=UNLIMITED)
        for _ in range(7):
            bench.claim_one()
            bench.pass_time(minutes=5)
            bench.rescue()
            bench.pass_time(minutes=5)
        assert bench.look(job).state == "pending"

    def test_a_job_that_someone_wants_cancelled_is_cancelled(self, bench: Bench) -> None:
        held = bench.hold(max_attempts=1)
        bench.cancel(held)
        bench.pass_time(seconds=61)
        (settlement,) = bench.rescue()
        assert settlement.state == "cancelled"
        assert bench.look(held).state == "cancelled"

    def test_a_job_that_keeps_nothing_is_gone_when_it_has_failed(self, bench: Bench) -> None:
        held = bench.hold(max_attempts=1, keep_seconds=0)
        bench.pass_time(seconds=61)
        assert len(bench.rescue()) == 1
        assert bench.get(held.id) == []
        assert bench.counts().total == 0

    @pytest.mark.parametrize("own_lease", [None, 5, 5000])
    def test_stale_is_who_was_not_heard_of_since_however_long_the_lease(
        self, bench: Bench, own_lease: float | None
    ) -> None:
        bench.add_many(2, lease_seconds=3600)
        silent, renewed = bench.claim(lease_seconds=own_lease)
        assert silent.job.claimed_at is not None
        bench.pass_time(minutes=2)
        bench.renew(renewed.lease(30))
        moment = silent.job.claimed_at + timedelta(minutes=1)
        assert bench.rescue(stale_before=silent.job.claimed_at) == []
        assert [settlement.id for settlement in bench.rescue(stale_before=moment)] == [silent.id]
        assert bench.look(renewed).state == "running"

    def test_those_that_come_back_together_are_staggered(self, bench: Bench) -> None:
        bench.add_many(50)
        claimed = bench.claim(50)
        bench.pass_time(minutes=5)
        assert len(bench.rescue()) == 50
        moments = {bench.look(held).run_at for held in claimed}
        assert len(moments) > 10

    @pytest.mark.parametrize(("count", "over"), [(1, 0.01), (100, 1.0)])
    def test_each_that_comes_back_makes_room_for_a_hundredth_of_a_second(
        self, bench: Bench, count: int, over: float
    ) -> None:
        bench.add_many(count, **columns(Policy(max_attempts=3, lease_seconds=60, backoff=Fixed(600))))
        bench.claim(count)
        bench.pass_time(minutes=5)
        delays = [settlement.delay_seconds or 0.0 for settlement in bench.rescue(count)]
        assert len(delays) == count
        assert min(delays) >= 600
        assert max(delays) <= 600 + over
        assert count == 1 or max(delays) > 600 + over / 2

    def test_no_more_than_asked_for_and_none_forgotten(self, bench: Bench) -> None:
        bench.add_many(25)
        bench.claim(25)
        bench.pass_time(minutes=5)
        rounds = [len(settlements) for settlements in iter(lambda: bench.rescue(10), [])]
        assert rounds == [10, 10, 5]
        assert bench.counts().pending == 25

    def test_of_many_rescuers_each_job_has_one(self, bench: Bench) -> None:
        bench.add_many(60)
        claimed = bench.claim(60)
        bench.pass_time(minutes=5)

        def rescue_all(_: int) -> list[Settlement]:
            return [settlement for some in iter(lambda: bench.rescue(10), []) for settlement in some]

        rescued = [settlement.id for some in bench.at_once(4, rescue_all) for settlement in some]
        assert sorted(rescued) == [held.id for held in claimed]
        assert {len(bench.look(held).attempts) for held in claimed} == {1}

    # Values that another version, or a manual change, may have left in a row.
    @pytest.mark.parametrize("junk", ["not json", "[1]", '{"backoff":{"kind":"fixed","delay":"x"},"timeout":"x"}', ""])
    def test_a_row_that_makes_no_sense_does_not_stop_the_others(self, bench: Bench, junk: str) -> None:
        bench.add(policy=junk, labels=junk)
        bench.add()
        for held in bench.claim():
            nonsense = Settlement(
                id=held.id, token=held.token, state=PENDING, error=junk, attempts=junk, delay_seconds=0
            )
            bench.accept(nonsense)
        held_again = bench.claim()
        bench.pass_time(minutes=5)
        assert len(bench.rescue()) == len(held_again) == 2
        assert {bench.look(held).state for held in held_again} == {"pending"}
        assert len(bench.find()) == 2

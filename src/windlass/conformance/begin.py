"""`begin`: a claimed last attempt counts when its handler begins. Before that, a rescue makes the job pending again."""

from __future__ import annotations

from uuid import uuid4

from ..policy import Policy
from ..stores.store import Lease, Refusal
from .bench import BY_NAME, Bench, columns
from .chains import going_on
from .fencing import lost_and_taken


class Beginning:
    def test_a_last_attempt_that_has_not_begun_is_given_back_by_a_rescue(self, bench: Bench) -> None:
        bench.add(max_attempts=1)
        held = bench.claim_one(begun=False)
        assert held.job.attempt == 1
        bench.pass_time(seconds=61)
        (settlement,) = bench.rescue()
        assert (settlement.id, settlement.state) == (held.id, "pending")
        job = bench.look(held)
        assert (job.state, job.attempt, job.error, job.attempts, job.worker) == ("pending", 0, None, (), None)
        bench.pass_time(seconds=30)
        again = bench.claim_one(begun=False)
        assert again.job.attempt == 1
        assert bench.settle(held.completes()) == [Refusal(held.id, "taken by another", held.token)]
        bench.accept(again.completes())

    def test_it_comes_back_as_often_as_it_has_not_begun(self, bench: Bench) -> None:
        job = bench.add(max_attempts=1)
        for _ in range(4):
            assert bench.claim_one(begun=False).job.attempt == 1
            bench.pass_time(minutes=5)
            bench.rescue()
            bench.pass_time(minutes=5)
        assert bench.look(job).state == "pending"

    def test_a_last_attempt_that_has_begun_fails(self, bench: Bench) -> None:
        bench.add_many(3, max_attempts=1)
        begun, other, another = bench.claim(begun=False)
        assert bench.run(lambda: bench.store.begin([begun.lease()])) == []
        bench.pass_time(seconds=61)
        assert {one.id: one.state for one in bench.rescue()} == {
            begun.id: "failed",
            other.id: "pending",
            another.id: "pending",
        }
        assert "LeaseExpired" in str(bench.look(begun).error)
        assert bench.look(begun).attempt == 1

    def test_many_begin_at_once(self, bench: Bench) -> None:
        bench.add_many(20, max_attempts=1)
        held = bench.claim(20, begun=False)
        assert bench.run(lambda: bench.store.begin([one.lease() for one in held])) == []
        bench.pass_time(seconds=61)
        assert {one.state for one in bench.rescue()} == {"failed"}

    def test_a_claim_says_whether_its_last_attempts_have_begun(self, bench: Bench) -> None:
        """A caller of the pull interface does not call `begin`, so its claim does. This holds also for a job that was
        given back once."""
        bench.add(max_attempts=1)
        bench.accept(bench.claim_one(begun=False).gives_back())
        held = bench.claim_one()
        bench.pass_time(seconds=61)
        assert [one.state for one in bench.rescue()] == ["failed"]
        assert bench.look(held).state == "failed"

    def test_attempts_that_are_not_the_last_count_as_begun(self, bench: Bench) -> None:
        bench.add(max_attempts=2)
        held = bench.claim_one(begun=False)
        bench.pass_time(seconds=61)
        assert [one.state for one in bench.rescue()] == ["pending"]
        job = bench.look(held)
        assert (job.attempt, len(job.attempts)) == (1, 1)
        bench.pass_time(minutes=5)
        assert bench.claim_one(begun=False).job.attempt == 2
        bench.pass_time(minutes=5)
        bench.rescue()
        job = bench.look(held)
        assert (job.state, job.attempt, len(job.attempts)) == ("pending", 1, 1)

    def test_a_job_by_name_has_its_last_attempt_by_the_claimers_policy(self, bench: Bench) -> None:
        bench.add(**BY_NAME)
        held = bench.claim_one(begun=False, policies={"task": Policy(max_attempts=1)})
        bench.pass_time(minutes=5)
        bench.rescue()
        assert (bench.look(held).state, bench.look(held).attempt) == ("pending", 0)

    def test_one_without_a_limit_has_no_last_attempt(self, bench: Bench) -> None:
        bench.add(max_attempts=0)
        held = bench.claim_one(begun=False)
        bench.pass_time(minutes=5)
        bench.rescue()
        assert bench.look(held).attempt == 1

    def test_what_was_cancelled_before_it_began_is_cancelled(self, bench: Bench) -> None:
        bench.add(max_attempts=1)
        held = bench.claim_one(begun=False)
        bench.cancel(held)
        bench.pass_time(seconds=61)
        assert [one.state for one in bench.rescue()] == ["cancelled"]

    def test_a_last_attempt_is_not_handed_over(self, bench: Bench) -> None:
        """A handover has no `begin`, so it cannot say when the last attempt begins."""
        first = bench.hold(queue="q")
        settlement = going_on(first, queue="q", **columns(Policy(max_attempts=1)))
        done = bench.run(lambda: bench.store.hand_over(settlement, uuid4(), "worker"))
        assert (done.refusals, done.job) == ([], None)
        assert bench.claim_one(queue="q").job.attempt == 1

    def test_who_has_lost_the_job_does_not_begin(self, bench: Bench) -> None:
        stale, fresh = lost_and_taken(bench)
        ended = bench.hold()
        bench.accept(ended.completes())
        absent = Lease(uuid4(), uuid4(), 60)
        refusals = bench.run(lambda: bench.store.begin([stale.lease(), fresh.lease(), ended.lease(), absent]))
        assert sorted(refusals, key=lambda one: one.reason) == [
            Refusal(ended.id, "already finished", ended.token),
            Refusal(absent.id, "not found", absent.token),
            Refusal(stale.id, "taken by another", stale.token),
        ]

    def test_to_begin_twice_is_to_begin(self, bench: Bench) -> None:
        bench.add(max_attempts=1)
        held = bench.claim_one(begun=False)
        for _ in range(2):
            assert bench.run(lambda: bench.store.begin([held.lease()])) == []
        bench.accept(held.completes())

    def test_the_lease_stays_as_it_is(self, bench: Bench) -> None:
        bench.add(max_attempts=1)
        held = bench.claim_one(begun=False)
        bench.pass_time(seconds=10)
        bench.run(lambda: bench.store.begin([held.lease(900)]))
        assert bench.look(held).lease_expires_at == held.job.lease_expires_at

    def test_an_empty_batch_is_nothing(self, bench: Bench) -> None:
        assert bench.run(lambda: bench.store.begin([])) == []

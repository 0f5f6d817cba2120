"""`if_failed`: how a job reacts when one of its blockers fails or is cancelled."""

from __future__ import annotations

import pytest

from ..lifecycle import BLOCKED, State
from .bench import Bench, Held, new_job
from .blockers import add_after
from .chains import going_on

BADLY: list[State] = ["failed", "cancelled"]


class FailingBlockers:
    @pytest.mark.parametrize("state", BADLY)
    def test_cancel_ends_what_waits_and_names_the_one_that_failed(self, bench: Bench, state: State) -> None:
        held = bench.hold(type="charge")
        job = add_after(bench, held, bench.hold(), if_failed="cancel")
        assert (job.if_failed, bench.look(job).if_failed) == ("cancel", "cancel")
        bench.accept(held.ends(state))
        now = bench.look(job)
        assert (now.state, now.attempt) == ("cancelled", 0)
        assert now.error is not None
        assert now.error.type == "BlockerFailed"
        assert f"job {held.id} (charge)" in now.error
        assert now.if_failed == "cancel"
        assert bench.counts().cancelled == 1 + (state == "cancelled")

    @pytest.mark.parametrize("state", BADLY)
    def test_run_counts_it_as_done_and_waits_for_the_others(self, bench: Bench, state: State) -> None:
        bad, good = bench.hold(), bench.hold()
        job = add_after(bench, bad, good, queue="q", if_failed="run")
        bench.accept(bad.ends(state))
        assert bench.look(job).state == "blocked"
        bench.accept(good.completes('"out"'))
        assert bench.look(job).state == "pending"
        assert bench.claim_one(queue="q").id == job.id
        assert [(one.done, one.failed, one.output) for one in bench.blockers(job)] == [
            (True, True, None),
            (True, False, '"out"'),
        ]

    @pytest.mark.parametrize("state", BADLY)
    @pytest.mark.parametrize(("then", "expected"), [("cancel", "cancelled"), ("run", "pending"), (None, "blocked")])
    def test_one_that_has_failed_before_counts_alike(
        self, bench: Bench, state: State, then: str | None, expected: State
    ) -> None:
        job = add_after(bench, bench.finish(state), bench.finish(), if_failed=then)
        assert bench.look(job).state == expected

    def test_each_of_those_that_wait_goes_its_own_way(self, bench: Bench) -> None:
        held = bench.hold()
        jobs = [add_after(bench, held, if_failed=then) for then in (None, "cancel", "run")]
        bench.accept(held.ends("failed"))
        assert [bench.look(job).state for job in jobs] == ["blocked", "cancelled", "pending"]

    def test_a_cancellation_goes_on_along_those_that_wait_for_it(self, bench: Bench) -> None:
        held = bench.hold()
        near = add_after(bench, held, if_failed="cancel", type="near")
        far = add_after(bench, near, if_failed="cancel")
        waits, runs = add_after(bench, far), add_after(bench, far, if_failed="run")
        bench.accept(held.ends("failed"))
        assert [bench.look(job).state for job in (near, far, waits, runs)] == [
            "cancelled",
            "cancelled",
            "blocked",
            "pending",
        ]
        error = bench.look(far).error
        assert error is not None
        assert f"job {near.id} (near), which it waited for, was cancelled" in error

    def test_a_long_row_of_them_ends_at_once(self, bench: Bench) -> None:
        root = bench.finish("failed")
        jobs = [new_job(blockers=(root.id,), state=BLOCKED, if_failed="cancel")]
        for _ in range(40):
            jobs.append(new_job(blockers=(jobs[-1].id,), state=BLOCKED, if_failed="cancel"))
        bench.enqueue(*jobs)
        bench.admit()
        assert {job.state for job in bench.get(*(job.id for job in jobs))} == {"cancelled"}

    def test_two_ways_to_one_job_end_it_once(self, bench: Bench) -> None:
        held = bench.hold()
        left, right = add_after(bench, held, if_failed="cancel"), add_after(bench, held, if_failed="cancel")
        job = add_after(bench, left, right, if_failed="cancel")
        bench.accept(held.ends("failed"))
        assert bench.look(job).state == "cancelled"
        assert bench.counts().cancelled == 3

    def test_one_chain_named_twice(self, bench: Bench) -> None:
        held = bench.hold()
        cancelled, runs = (add_after(bench, held, held, if_failed=then) for then in ("cancel", "run"))
        bench.accept(held.ends("failed"))
        assert [bench.look(job).state for job in (cancelled, runs)] == ["cancelled", "pending"]

    def test_the_end_of_a_chain_counts(self, bench: Bench) -> None:
        first = bench.hold(queue="chain")
        job = add_after(bench, first, if_failed="cancel")
        bench.accept(going_on(first, queue="chain"))
        assert bench.look(job).state == "blocked"
        bench.accept(bench.claim_one(queue="chain").ends("failed"))
        assert bench.look(job).state == "cancelled"

    def test_an_attempt_that_is_to_be_repeated_is_no_end(self, bench: Bench) -> None:
        held = bench.hold()
        job = add_after(bench, held, if_failed="cancel")
        bench.accept(held.raises(ValueError("once more")))
        assert bench.look(job).state == "blocked"

    def test_what_people_and_time_end_counts_too(self, bench: Bench) -> None:
        waiting, late = bench.add(queue="q"), bench.add(queue="q", expires_seconds=10)
        lost = bench.hold(max_attempts=1)
        jobs = [add_after(bench, one, if_failed="cancel") for one in (waiting, late, lost)]
        bench.cancel(waiting)
        bench.pass_time(seconds=11)
        bench.expire()
        bench.pass_time(minutes=2)
        bench.rescue()
        assert [bench.look(job).state for job in jobs] == ["cancelled"] * 3

    def test_a_running_blocker_whose_cancelling_was_asked_for(self, bench: Bench) -> None:
        held = bench.hold()
        job = add_after(bench, held, if_failed="cancel")
        bench.cancel(held)
        assert bench.look(job).state == "blocked"
        bench.send_back(held)
        assert bench.look(held).state == "cancelled"
        assert bench.look(job).state == "cancelled"

    def test_one_that_leaves_no_trace_fails_all_the_same(self, bench: Bench) -> None:
        held = bench.hold(keep_seconds=0)
        job = add_after(bench, held, if_failed="cancel", keep_seconds=0)
        runs = add_after(bench, held, if_failed="run")
        bench.accept(held.ends("failed"))
        assert bench.get(held.id, job.id) == []
        assert bench.look(runs).state == "pending"

    def test_what_counts_as_done_stays_so_when_it_is_brought_back(self, bench: Bench) -> None:
        bad, other = bench.hold(queue="bad"), bench.hold()
        job = add_after(bench, bad, other, if_failed="run")
        bench.accept(bad.ends("failed"))
        bench.retry(bad)
        bench.accept(bench.claim_one(queue="bad").completes('"late"'))
        assert bench.look(job).state == "blocked"
        bench.accept(other.completes())
        assert bench.look(job).state == "pending"
        assert bench.blockers(job)[0].failed

    def test_a_cancelled_one_waits_again_after_its_blocker_was_brought_back(self, bench: Bench) -> None:
        bad = bench.hold(queue="bad")
        job = add_after(bench, bad, if_failed="cancel")
        bench.accept(bad.ends("failed"))
        bench.retry(bad)
        bench.retry(job)
        bench.admit()
        assert bench.look(job).state == "blocked"
        bench.accept(bench.claim_one(queue="bad").completes())
        assert bench.look(job).state == "pending"

    def test_its_order_key_and_unique_key_are_free_again(self, bench: Bench) -> None:
        held = bench.hold()
        key = {"unique_key": "key", "unique_until": "finished", "order_key": "line", "queue": "q"}
        add_after(bench, held, if_failed="cancel", **key)
        bench.accept(held.ends("failed"))
        assert bench.enqueue_one(**key).created
        bench.admit()
        assert isinstance(bench.claim_one(queue="q"), Held)

    def test_the_trace_of_a_chain_goes_along_with_it(self, bench: Bench) -> None:
        held = bench.hold(queue="chain", chain_trace="00-a")
        assert (held.job.chain_trace, bench.look(held).chain_trace) == ("00-a", "00-a")
        bench.accept(going_on(held, queue="chain", chain_trace=held.job.chain_trace))
        following = bench.claim_one(queue="chain")
        assert following.job.chain_trace == "00-a"
        bench.accept(following.ends("failed"))
        assert {job.chain_trace for job in bench.find(chain=held.id)} == {"00-a"}
        bench.retry(following)
        assert bench.look(following).chain_trace == "00-a"

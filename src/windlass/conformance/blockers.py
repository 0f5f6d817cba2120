"""Blockers: a job waits until the chains that it names have completed, and not longer."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from ..errors import InvalidInput, JobNotFound
from ..job import Job
from ..lifecycle import BLOCKED, State
from .bench import Bench, Held, new_job
from .chains import going_on


def add_after(bench: Bench, *blockers: Job | Held, **fields: Any) -> Job:
    """Enqueue a job that waits for these, and admit it."""
    (answer,) = bench.enqueue(new_job(blockers=tuple(one.id for one in blockers), state=BLOCKED, **fields))
    bench.admit()
    return answer.job


class Blocking:
    def test_it_waits_until_the_last_has_completed(self, bench: Bench) -> None:
        one, two = bench.hold(), bench.hold()
        job = add_after(bench, one, two, queue="q")
        assert bench.look(job).state == "blocked"
        bench.accept(one.completes())
        assert bench.look(job).state == "blocked"
        assert bench.claim(queue="q") == []
        bench.accept(two.completes())
        assert bench.look(job).state == "pending"
        assert bench.claim_one(queue="q").id == job.id

    def test_what_has_completed_before_does_not_block(self, bench: Bench) -> None:
        job = add_after(bench, bench.finish(), bench.finish(), queue="q")
        assert bench.claim_one(queue="q").id == job.id

    def test_outputs_come_in_the_order_that_was_given(self, bench: Bench) -> None:
        before, one, two = bench.finish(), bench.hold(), bench.hold()
        job = add_after(bench, two, before, one)
        bench.accept(one.completes('"one"'), two.completes('"two"'))
        blockers = bench.blockers(job)
        assert [blocker.output for blocker in blockers] == ['"two"', '"done"', '"one"']
        assert all(blocker.done for blocker in blockers)

    def test_a_chain_blocks_until_its_last_job_has_completed(self, bench: Bench) -> None:
        first = bench.hold(queue="chain")
        job = add_after(bench, first)
        bench.accept(going_on(first, queue="chain"))
        second = bench.claim_one(queue="chain")
        bench.accept(going_on(second, queue="chain"))
        assert bench.look(job).state == "blocked"
        bench.accept(bench.claim_one(queue="chain").completes('"last"'))
        assert bench.look(job).state == "pending"
        assert [blocker.output for blocker in bench.blockers(job)] == ['"last"']

    def test_any_job_of_a_chain_stands_for_the_chain(self, bench: Bench) -> None:
        first = bench.hold(queue="chain")
        bench.accept(going_on(first, queue="chain"))
        second = bench.claim_one(queue="chain")
        job = add_after(bench, second)
        bench.accept(second.completes())
        assert bench.look(job).state == "pending"

    @pytest.mark.parametrize("state", ["failed", "cancelled"])
    def test_one_that_ends_badly_holds_and_frees_when_it_is_brought_back(self, bench: Bench, state: State) -> None:
        held = bench.hold(queue="blocker")
        job = add_after(bench, held)
        bench.accept(held.ends(state))
        bench.admit()
        assert bench.look(job).state == "blocked"
        bench.retry(held)
        bench.accept(bench.claim_one(queue="blocker").completes())
        assert bench.look(job).state == "pending"

    @pytest.mark.parametrize("state", ["failed", "cancelled"])
    def test_one_that_has_ended_badly_before_holds_too(self, bench: Bench, state: State) -> None:
        blocker = bench.finish(state, queue="blocker")
        job = add_after(bench, blocker)
        assert bench.look(job).state == "blocked"
        bench.retry(blocker)
        bench.accept(bench.claim_one(queue="blocker").completes())
        assert bench.look(job).state == "pending"

    def test_a_blocker_without_history_frees_as_well(self, bench: Bench) -> None:
        held = bench.hold(keep_seconds=0)
        job = add_after(bench, held)
        bench.accept(held.completes('"gone"'))
        assert bench.look(job).state == "pending"
        assert [blocker.output for blocker in bench.blockers(job)] == ['"gone"']

    @pytest.mark.parametrize("state", ["completed", "failed"])
    def test_a_chain_whose_end_was_not_kept_holds_those_that_come_later(self, bench: Bench, state: State) -> None:
        first = bench.hold(queue="chain")
        bench.accept(going_on(first, queue="chain", keep_seconds=0))
        bench.accept(bench.claim_one(queue="chain").ends(state))
        job = add_after(bench, first)
        assert bench.look(job).state == "blocked"
        assert [blocker.done for blocker in bench.blockers(job)] == [False]

    def test_a_chain_cannot_come_to_wait_for_itself(self, bench: Bench) -> None:
        first = bench.hold(queue="chain")
        near = add_after(bench, first, queue="near")
        far = add_after(bench, near, queue="far")
        for blocker in (first.job, near, far):
            with pytest.raises(InvalidInput, match="wait for its own chain"):
                bench.settle(going_on(first, blockers=(blocker.id,), state=BLOCKED))
        assert bench.look(first).state == "running"
        assert bench.counts().total == 3
        bench.accept(going_on(first, queue="chain", blockers=(bench.finish().id,), state=BLOCKED))
        bench.admit()
        bench.accept(bench.claim_one(queue="chain").completes())
        assert bench.claim_one(queue="near").id == near.id

    def test_two_chains_cannot_come_to_wait_for_each_other(self, bench: Bench) -> None:
        one, other = bench.hold(), bench.hold()
        crosswise = (
            going_on(one, blockers=(other.id,), state=BLOCKED),
            going_on(other, blockers=(one.id,), state=BLOCKED),
        )
        with pytest.raises(InvalidInput, match="wait for its own chain"):
            bench.settle(*crosswise)
        assert [bench.look(held).state for held in (one, other)] == ["running", "running"]
        bench.accept(crosswise[0])
        with pytest.raises(InvalidInput, match="wait for its own chain"):
            bench.settle(crosswise[1])
        bench.accept(other.completes())

    def test_it_is_due_at_its_own_time(self, bench: Bench) -> None:
        held = bench.hold()
        job = add_after(bench, held, queue="q", delay_seconds=60)
        bench.accept(held.completes())
        assert bench.look(job).state == "pending"
        assert bench.claim(queue="q") == []
        bench.pass_time(seconds=61)
        assert len(bench.claim(queue="q")) == 1

    def test_one_that_is_freed_late_is_due_then(self, bench: Bench) -> None:
        held = bench.hold()
        job = add_after(bench, held)
        bench.pass_time(minutes=10)
        bench.accept(held.completes())
        assert bench.look(job).run_at > job.run_at

    def test_in_one_batch(self, bench: Bench) -> None:
        root = new_job(queue="root")
        middle = [new_job(queue="middle", blockers=(root.id,), state=BLOCKED) for _ in range(3)]
        last = new_job(queue="last", blockers=tuple(one.id for one in middle), state=BLOCKED)
        bench.enqueue(last, *middle, root)
        bench.admit()
        bench.accept(bench.claim_one(queue="root").completes())
        bench.accept(*(held.completes() for held in bench.claim(queue="middle")))
        assert bench.claim_one(queue="last").id == last.id

    def test_many_for_one_and_one_for_many(self, bench: Bench) -> None:
        blockers = bench.add_many(50, queue="many")
        job = add_after(bench, *blockers)
        jobs = [add_after(bench, blockers[0], queue="freed") for _ in range(20)]
        held = {one.id: one for one in bench.claim(100, queue="many")}
        bench.accept(held.pop(blockers[0].id).completes())
        assert len(bench.claim(100, queue="freed")) == len(jobs)
        bench.accept(*(one.completes() for one in held.values()))
        assert bench.look(job).state == "pending"

    def test_what_does_not_exist_is_refused_and_nothing_is_added(self, bench: Bench) -> None:
        with pytest.raises(JobNotFound, match="does not exist"):
            bench.enqueue(new_job(), new_job(blockers=(uuid4(),), state=BLOCKED))
        assert bench.counts().total == 0

    def test_a_blocked_job_can_be_cancelled_and_brought_back(self, bench: Bench) -> None:
        held = bench.hold()
        job = add_after(bench, held)
        assert bench.cancel(job)[0].done
        assert bench.look(job).state == "cancelled"
        bench.retry(job)
        bench.admit()
        assert bench.look(job).state == "blocked"
        bench.accept(held.completes())
        assert bench.look(job).state == "pending"

    def test_who_acts_on_a_blocked_job_is_told_that_it_is_blocked(self, bench: Bench) -> None:
        job = add_after(bench, bench.hold(), delay_seconds=60)
        assert [(change.done, change.state) for change in bench.run_now(job)] == [(False, "blocked")]
        assert bench.look(job).run_at == job.run_at
        bench.cancel(job)
        assert [(change.done, change.state) for change in bench.retry(job)] == [(True, "blocked")]

    def test_sent_again_when_what_it_waits_for_is_gone(self, bench: Bench) -> None:
        held = bench.hold()
        new = new_job(blockers=(held.id,), state=BLOCKED)
        bench.enqueue(new)
        bench.admit()
        bench.accept(held.completes())
        assert bench.delete(held)[0].done
        (answer,) = bench.enqueue(new, resent=True)
        assert (answer.job.id, answer.created) == (new.id, False)

    def test_one_that_left_no_trace_can_come_again(self, bench: Bench) -> None:
        held = bench.hold()
        new = new_job(queue="q", blockers=(held.id,), state=BLOCKED, keep_seconds=0)
        bench.enqueue(new)
        bench.admit()
        assert bench.cancel(new.id)[0].done
        (answer,) = bench.enqueue(new, resent=True)
        bench.admit()
        assert (answer.created, bench.look(new.id).state) == (True, "blocked")
        bench.accept(held.completes())
        assert bench.claim_one(queue="q").id == new.id

    def test_brought_back_it_still_has_what_it_waited_for(self, bench: Bench) -> None:
        job = add_after(bench, bench.finish(), queue="q")
        bench.accept(bench.claim_one(queue="q").ends("failed"))
        bench.retry(job)
        bench.admit()
        held = bench.claim_one(queue="q")
        assert held.job.blockers_left == 0
        assert [blocker.output for blocker in bench.blockers(job)] == ['"done"']


class DeletingBlockers:
    def test_not_while_another_waits_for_it(self, bench: Bench) -> None:
        blocker = bench.add()
        job = add_after(bench, blocker)
        (change,) = bench.delete(blocker)
        assert (change.done, change.state) == (False, "pending")
        assert change.reason is not None
        assert str(job.id) in change.reason
        assert len(bench.find()) == 2

    @pytest.mark.parametrize("state", ["failed", "cancelled"])
    def test_one_that_is_waited_for_in_vain_says_how_it_ended(self, bench: Bench, state: State) -> None:
        blocker = bench.finish(state)
        add_after(bench, blocker)
        assert [(change.done, change.state) for change in bench.delete(blocker)] == [(False, state)]

    def test_together_with_those_that_wait(self, bench: Bench) -> None:
        root = bench.add()
        left, right = add_after(bench, root), add_after(bench, root)
        last = add_after(bench, left, right)
        assert all(change.done for change in bench.delete(root, left, right, last))
        assert bench.find() == []

    def test_what_a_refused_one_waits_for_stays_as_well(self, bench: Bench) -> None:
        root = bench.add()
        middle = add_after(bench, root)
        add_after(bench, middle)
        assert [change.done for change in bench.delete(root, middle)] == [False, False]
        assert len(bench.find()) == 3

    def test_when_nobody_waits_any_more(self, bench: Bench) -> None:
        held = bench.hold()
        job = add_after(bench, held)
        bench.accept(held.completes('"kept"'))
        assert bench.delete(held)[0].done
        assert [blocker.output for blocker in bench.blockers(job)] == ['"kept"']

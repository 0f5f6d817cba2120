"""Chains: the completion of a job and the creation of the next one are one transaction."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import msgspec
import pytest

from ..errors import Conflict, InvalidInput
from ..job import NewJob
from ..outcome import Settlement
from .bench import Bench, Held, new_job


def next_of(held: Held, **fields: Any) -> NewJob:
    return new_job(chain_id=held.job.chain_id, chain_index=held.job.chain_index + 1, **fields)


def going_on(held: Held, **fields: Any) -> Settlement:
    """The job completes, and its chain continues with another job."""
    return msgspec.structs.replace(held.completes(), output=None, continues=next_of(held, **fields))


class Chains:
    def test_the_next_job_comes_with_the_completion(self, bench: Bench) -> None:
        first = bench.hold(queue="q")
        bench.accept(going_on(first, queue="q", input='{"step":2}'))
        assert bench.look(first).state == "completed"
        second = bench.claim_one(queue="q")
        assert (second.job.chain_id, second.job.chain_index, second.job.input_json) == (first.id, 1, '{"step":2}')
        bench.accept(second.completes('"end"'))
        assert [job.chain_index for job in bench.find(chain=first.id)] == [1, 0]

    def test_a_refused_completion_leaves_no_next_job(self, bench: Bench) -> None:
        first = bench.hold()
        stale = Held(first.job, UUID(int=1))
        (refusal,) = bench.settle(going_on(stale))
        assert (refusal.id, refusal.reason) == (first.id, "taken by another")
        assert bench.counts().total == 1

    def test_sent_again_it_is_accepted_and_continues_once(self, bench: Bench) -> None:
        settlement = going_on(bench.hold())
        bench.accept(settlement)
        bench.accept(settlement)
        assert bench.counts()["pending"] == 1

    def test_a_place_that_is_taken_is_refused_for_good(self, bench: Bench) -> None:
        """A job that is not kept is enqueued again with its id, while the chain that it began still runs."""
        id = UUID(int=1)
        bench.accept(going_on(bench.hold(id=id, keep_seconds=0), queue="later"))
        again = bench.hold(id=id, keep_seconds=0)
        with pytest.raises((Conflict, InvalidInput)):
            bench.settle(going_on(again))
        assert bench.look(again).state == "running"
        bench.accept(again.completes())
        assert bench.counts().total == 1

    def test_in_one_batch_with_others(self, bench: Bench) -> None:
        plain, chained, stale = bench.hold(), bench.hold(), bench.hold()
        (refusal,) = bench.settle(
            plain.completes(), going_on(chained), going_on(Held(stale.job, UUID(int=1))), bench.hold().gives_back()
        )
        assert refusal.id == stale.id
        assert [bench.look(one).state for one in (plain, chained, stale)] == ["completed", "completed", "running"]
        assert bench.counts()["pending"] == 2

    def test_a_chain_can_go_in_a_loop(self, bench: Bench) -> None:
        held = bench.hold(queue="loop", type="step")
        for _ in range(10):
            bench.accept(going_on(held, queue="loop", type="step"))
            held = bench.claim_one(queue="loop")
        bench.accept(held.completes())
        assert {job.chain_id for job in bench.find()} == {held.job.chain_id}
        assert sorted(job.chain_index for job in bench.find()) == list(range(11))

    def test_the_next_job_may_be_for_later_and_unique(self, bench: Bench) -> None:
        held = bench.hold()
        bench.accept(going_on(held, queue="later", delay_seconds=60))
        assert bench.claim(queue="later") == []
        bench.pass_time(seconds=61)
        assert len(bench.claim(queue="later")) == 1

    def test_a_deleted_chain_goes_as_a_whole(self, bench: Bench) -> None:
        first = bench.hold(queue="q")
        bench.accept(going_on(first, queue="q"))
        second = bench.claim_one(queue="q")
        bench.accept(going_on(second, queue="q"))
        (change,) = bench.delete(second)
        assert change.done
        assert bench.find() == []

    def test_a_chain_with_a_running_job_is_not_deleted(self, bench: Bench) -> None:
        first = bench.hold(queue="q")
        bench.accept(going_on(first, queue="q"))
        bench.claim_one(queue="q")
        (change,) = bench.delete(first)
        assert (change.done, change.state) == (False, "running")
        assert len(bench.find()) == 2

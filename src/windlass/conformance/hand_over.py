"""Handover: the worker that completes a job gets the next job of its chain at once, and no other worker gets it."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import pytest

from ..lifecycle import BLOCKED
from ..outcome import Settlement
from ..stores.store import HandedOver
from .bench import Bench, Held, new_job
from .blockers import add_after
from .chains import going_on

LEASE: dict[str, Any] = {"lease_seconds": 60.0, "max_attempts": 3, "keep_seconds": 3600}


def hand_over(bench: Bench, settlement: Settlement, token: UUID | None = None) -> HandedOver:
    return bench.run(lambda: bench.store.hand_over(settlement, token or uuid4(), "me"))


class HandingOver:
    def test_the_next_job_runs_at_once(self, bench: Bench) -> None:
        first, token = bench.hold(queue="q"), uuid4()
        done = hand_over(bench, going_on(first, queue="q", input='{"step":2}', **LEASE), token)
        assert done.refusals == []
        assert done.job is not None
        assert (done.job.state, done.job.attempt, done.job.worker) == ("running", 1, "me")
        assert (done.job.chain_id, done.job.chain_index, done.job.input_json) == (first.id, 1, '{"step":2}')
        stored = bench.look(done.job)
        assert stored.claimed_at is not None
        assert stored.lease_expires_at is not None
        assert (stored.lease_expires_at - stored.claimed_at).total_seconds() == pytest.approx(60, abs=0.01)
        assert bench.look(first).state == "completed"
        assert bench.claim(queue="q") == []
        bench.accept(Held(done.job, token).completes('"end"'))
        assert [job.state for job in bench.find(chain=first.id)] == ["completed", "completed"]

    def test_it_can_be_handed_on_and_on(self, bench: Bench) -> None:
        held = bench.hold(queue="q")
        for _ in range(5):
            token = uuid4()
            done = hand_over(bench, going_on(held, queue="q", **LEASE), token)
            assert done.job is not None
            held = Held(done.job, token)
        assert held.job.chain_index == 5
        assert dict(bench.counts())["completed"] == 5

    def test_it_is_found_again_by_its_token(self, bench: Bench) -> None:
        first, token = bench.hold(), uuid4()
        settlement = going_on(first, **LEASE)
        done = hand_over(bench, settlement, token)
        assert done.job is not None
        assert bench.settle(settlement) == []
        assert hand_over(bench, settlement, token) == HandedOver([])
        assert [job.id for job in bench.run(lambda: bench.store.adopt(token))] == [done.job.id]
        assert bench.counts().total == 2

    def test_a_refused_completion_hands_nothing_over(self, bench: Bench) -> None:
        first = bench.hold()
        done = hand_over(bench, going_on(Held(first.job, uuid4()), **LEASE))
        assert [refusal.reason for refusal in done.refusals] == ["taken by another"]
        assert done.job is None
        assert bench.counts().total == 1

    def test_in_a_paused_queue_it_waits(self, bench: Bench) -> None:
        first = bench.hold(queue="open")
        bench.run(lambda: bench.store.pause("closed"))
        done = hand_over(bench, going_on(first, queue="closed", **LEASE))
        assert done == HandedOver([])
        assert bench.look(first).state == "completed"
        assert bench.claim(queue="closed") == []
        bench.run(lambda: bench.store.resume("closed"))
        assert bench.claim_one(queue="closed").job.chain_index == 1

    @pytest.mark.parametrize(
        "fields", [{"delay_seconds": 60.0}, {"order_key": "key"}, {"unique_key": "u", "unique_until": "claimed"}]
    )
    def test_one_that_is_to_wait_waits(self, bench: Bench, fields: dict[str, Any]) -> None:
        first = bench.hold()
        done = hand_over(bench, going_on(first, queue="next", **LEASE, **fields))
        assert done == HandedOver([])
        assert bench.look(first).state == "completed"
        assert dict(bench.counts())["pending"] == 1

    def test_one_that_waits_for_others_waits(self, bench: Bench) -> None:
        first, blocker = bench.hold(), bench.hold()
        done = hand_over(bench, going_on(first, queue="next", blockers=(blocker.id,), state=BLOCKED, **LEASE))
        assert done == HandedOver([])
        bench.admit()
        bench.accept(blocker.completes())
        assert bench.claim_one(queue="next").job.chain_id == first.id

    def test_who_waits_for_the_chain_goes_on_waiting(self, bench: Bench) -> None:
        first, token = bench.hold(), uuid4()
        job = add_after(bench, first, queue="after")
        done = hand_over(bench, going_on(first, **LEASE), token)
        assert done.job is not None
        assert bench.look(job).state == "blocked"
        bench.accept(Held(done.job, token).completes('"end"'))
        assert bench.look(job).state == "pending"
        assert [blocker.output for blocker in bench.blockers(job)] == ['"end"']

    def test_an_order_key_is_passed_on(self, bench: Bench) -> None:
        bench.enqueue(new_job(order_key="key", queue="q"), new_job(order_key="key", queue="q"))
        bench.admit()
        first = bench.claim_one(queue="q")
        done = hand_over(bench, going_on(first, queue="other", **LEASE))
        assert done.job is not None
        assert bench.claim_one(queue="q").job.order_key == "key"

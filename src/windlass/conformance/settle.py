"""`settle`: the state of a job after each kind of outcome."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from ..backoff import Fixed
from ..lifecycle import COMPLETED, FINISHED
from ..outcome import Cancel, Fail, Retry, Settlement, Snooze
from ..policy import FOR_EVER, UNLIMITED, Policy
from .bench import BY_NAME, Bench, columns


class Ending:
    def test_a_completed_job_keeps_its_output_and_holds_no_lease(self, bench: Bench) -> None:
        held = bench.hold(input='{"n":1}', labels='{"a":"b"}', tenant="acme")
        bench.accept(held.completes('{"sent":true}'))
        job = bench.look(held)
        assert (job.state, job.output, job.error) == ("completed", {"sent": True}, None)
        assert (job.input, job.labels, job.tenant, job.attempt) == ({"n": 1}, {"a": "b"}, "acme", 1)
        assert (job.worker, job.lease_expires_at) == ("worker", None)
        assert job.finished

    def test_a_finished_job_has_ended_by_the_stores_clock(self, bench: Bench) -> None:
        held = bench.hold()
        bench.pass_time(hours=5)
        bench.accept(held.completes())
        job = bench.look(held)
        assert job.finished_at is not None
        assert timedelta(hours=5) <= job.finished_at - job.created_at < timedelta(hours=6)

    def test_a_failed_job_keeps_its_error(self, bench: Bench) -> None:
        held = bench.hold()
        bench.accept(held.raises(Fail("no such user")))
        job = bench.look(held)
        assert (job.state, job.output) == ("failed", None)
        assert job.error is not None
        assert (job.error.type, job.error.message) == ("Fail", "no such user")
        assert job.error.traceback is not None

    def test_an_error_on_the_last_attempt_fails_the_job(self, bench: Bench) -> None:
        held = bench.hold(max_attempts=1)
        bench.accept(held.raises(ValueError("boom")))
        assert bench.look(held).state == "failed"

    def test_a_job_can_cancel_itself(self, bench: Bench) -> None:
        held = bench.hold()
        bench.accept(held.raises(Cancel("out of season")))
        job = bench.look(held)
        assert job.state == "cancelled"
        assert job.error is not None
        assert job.error.message == "out of season"

    def test_what_is_finished_is_not_claimed_again(self, bench: Bench) -> None:
        for state in FINISHED:
            job = bench.finish(state)
            assert bench.claim(queue=job.queue) == []

    def test_a_job_that_keeps_nothing_leaves_nothing(self, bench: Bench) -> None:
        job = bench.finish("failed", keep_seconds=0)
        assert bench.get(job.id) == []
        assert bench.find() == []
        assert bench.counts().total == 0

    def test_a_job_that_is_kept_for_ever_outlives_every_pruning(self, bench: Bench) -> None:
        job = bench.finish(keep_seconds=FOR_EVER)
        bench.pass_time(days=5000)
        assert bench.prune() == 0
        assert bench.look(job).state == "completed"

    def test_a_waiting_job_can_be_settled_by_who_claims_nothing(self, bench: Bench) -> None:
        job = bench.add()
        bench.accept(Settlement(id=job.id, token=None, state=COMPLETED, output='"by hand"'))
        done = bench.look(job)
        assert (done.state, done.output, done.attempt) == ("completed", "by hand", 0)

    def test_a_job_that_never_learned_its_policy_is_kept_as_by_default(self, bench: Bench) -> None:
        job = bench.add(**BY_NAME)
        bench.accept(Settlement(id=job.id, token=None, state=COMPLETED, output="1"))
        bench.pass_time(days=6)
        assert bench.prune() == 0
        bench.pass_time(days=3)
        assert bench.prune() == 1

    def test_an_empty_batch_is_nothing(self, bench: Bench) -> None:
        bench.accept()


class SendingBack:
    def test_a_retry_waits_for_its_backoff_and_remembers_why(self, bench: Bench) -> None:
        held = bench.hold(**columns(Policy(max_attempts=3, backoff=Fixed(600))))
        bench.accept(held.raises(ValueError("boom")))
        job = bench.look(held)
        assert (job.state, job.attempt, job.worker, job.lease_expires_at) == ("pending", 1, None, None)
        assert job.error is not None
        assert (job.error.type, job.error.message) == ("ValueError", "boom")
        assert bench.claim(queue=job.queue) == []
        bench.pass_time(seconds=300)
        assert bench.claim(queue=job.queue) == []
        bench.pass_time(seconds=301)
        assert bench.claim_one(queue=job.queue).job.attempt == 2

    def test_a_retry_can_name_its_moment(self, bench: Bench) -> None:
        moment = datetime(2100, 1, 1, tzinfo=UTC)
        held = bench.hold()
        bench.accept(held.raises(Retry(at=moment)))
        assert bench.look(held).run_at == moment

    def test_a_snooze_spends_no_attempt_and_is_no_error(self, bench: Bench) -> None:
        held = bench.hold(max_attempts=1)
        bench.accept(held.raises(Snooze(after=60)))
        job = bench.look(held)
        assert (job.state, job.attempt, job.error, job.attempts) == ("pending", 0, None, ())
        bench.pass_time(seconds=61)
        assert bench.claim_one(queue=job.queue).job.attempt == 1

    def test_what_is_given_back_is_as_it_was(self, bench: Bench) -> None:
        before = bench.add(priority=3)
        bench.add()
        bench.pass_time(seconds=10)
        held = bench.claim_one()
        bench.accept(held.gives_back())
        after = bench.look(before)
        assert (after.state, after.attempt, after.run_at) == ("pending", 0, before.run_at)
        assert bench.claim_one().job == before

    def test_a_job_remembers_its_last_ten_attempts(self, bench: Bench) -> None:
        queue = bench.add(max_attempts=UNLIMITED).queue
        for number in range(1, 13):
            held = bench.claim_one(queue=queue, worker=f"worker-{number}")
            bench.accept(held.raises(ValueError(f"boom {number}")))
        story = bench.look(held).attempts
        assert [one.number for one in story] == list(range(3, 13))
        assert [one.worker for one in story] == [f"worker-{number}" for number in range(3, 13)]
        assert [str(one.error) for one in story] == [f"ValueError: boom {number}" for number in range(3, 13)]
        assert all(one.started_at is not None for one in story)

    def test_completion_clears_the_error_and_keeps_the_story(self, bench: Bench) -> None:
        held = bench.hold(queue="q")
        bench.accept(held.raises(ValueError("boom")))
        bench.accept(bench.claim_one(queue="q").completes())
        job = bench.look(held)
        assert (job.state, job.error, job.attempt) == ("completed", None, 2)
        assert [str(one.error) for one in job.attempts] == ["ValueError: boom"]

    def test_a_snooze_keeps_the_error_of_the_attempt_before(self, bench: Bench) -> None:
        held = bench.hold(queue="q")
        bench.accept(held.raises(ValueError("boom")))
        bench.accept(bench.claim_one(queue="q").raises(Snooze(after=60)))
        assert str(bench.look(held).error) == "ValueError: boom"


class Batches:
    def test_each_settlement_of_a_batch_has_its_own_effect(self, bench: Bench) -> None:
        bench.add_many(7)
        done, failed, cancelled, retried, snoozed, returned, other = bench.claim()
        bench.accept(
            retried.raises(ValueError("boom")), done.completes('"a"'), snoozed.raises(Snooze(after=60)),
            failed.raises(Fail("no")), other.completes('"b"'), returned.gives_back(), cancelled.raises(Cancel()),
        )  # fmt: skip
        look: dict[Any, Any] = {held: bench.look(held) for held in (done, other, failed, cancelled)}
        assert [look[held].state for held in look] == ["completed", "completed", "failed", "cancelled"]
        assert (look[done].output, look[other].output) == ("a", "b")
        assert [bench.look(held).attempt for held in (retried, snoozed, returned)] == [1, 0, 0]
        assert [held.job for held in bench.claim()] == [returned.job, retried.job]

    @pytest.mark.parametrize("keep_seconds", [0, 86_400])
    def test_hundreds_at_once(self, bench: Bench, keep_seconds: int) -> None:
        bench.add_many(500, keep_seconds=keep_seconds)
        claimed = bench.claim(500)
        bench.accept(*(held.completes(f'"{held.id}"') for held in claimed))
        assert bench.counts().completed == (500 if keep_seconds else 0)
        assert all(job.output == str(job.id) for job in bench.find())

    def test_a_refusal_does_not_hold_up_the_others(self, bench: Bench) -> None:
        bench.add_many(30)
        claimed = bench.claim(30)
        stranger = Settlement(id=claimed[7].id, token=uuid4(), state=COMPLETED, output="0")
        settlements = [held.completes("1") for held in claimed]
        settlements[7] = stranger
        (refusal,) = bench.settle(*settlements)
        assert refusal.id == claimed[7].id
        assert (bench.counts().completed, bench.counts().running) == (29, 1)

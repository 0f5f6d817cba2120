"""`cancel`: a waiting job is cancelled at once. For a running job it is a request to its worker."""

from __future__ import annotations

from uuid import uuid4

import pytest

from ..lifecycle import State
from ..outcome import Fail, Retry, Snooze
from ..stores.store import Change
from .bench import Bench


class Cancelling:
    @pytest.mark.parametrize("delay_seconds", [0, 60])
    def test_a_waiting_job_is_cancelled_at_once(self, bench: Bench, delay_seconds: float) -> None:
        job = bench.add(delay_seconds=delay_seconds)
        (change,) = bench.cancel(job)
        assert (change.id, change.done, change.state) == (job.id, True, "cancelled")
        ended = bench.look(job)
        assert (ended.state, ended.error, ended.attempt) == ("cancelled", None, 0)
        assert ended.finished_at is not None
        bench.pass_time(seconds=61)
        assert bench.claim() == []

    def test_a_job_that_waits_for_its_next_attempt_is_cancelled_at_once(self, bench: Bench) -> None:
        held = bench.hold()
        bench.accept(held.raises(Retry(after=60)))
        (change,) = bench.cancel(held)
        assert (change.done, change.state) == (True, "cancelled")
        assert bench.look(held).state == "cancelled"

    def test_for_a_running_job_it_is_noted(self, bench: Bench) -> None:
        held = bench.hold()
        (change,) = bench.cancel(held)
        assert (change.id, change.done, change.state) == (held.id, True, "running")
        job = bench.look(held)
        assert (job.state, job.cancel_requested) == ("running", True)

    @pytest.mark.parametrize("outcome", [Retry(after=60), Snooze(after=60), ValueError("boom"), None], ids=repr)
    def test_what_was_to_come_back_is_cancelled_instead(self, bench: Bench, outcome: Exception | None) -> None:
        held, other = bench.hold(), bench.hold()
        bench.cancel(held)
        bench.accept(*((one.gives_back() if outcome is None else one.raises(outcome)) for one in (held, other)))
        assert bench.look(held).state == "cancelled"
        assert bench.look(other).state == "pending"
        assert bench.counts().cancelled == 1

    def test_a_job_that_completes_all_the_same_is_completed(self, bench: Bench) -> None:
        held = bench.hold()
        bench.cancel(held)
        bench.accept(held.completes('"done"'))
        job = bench.look(held)
        assert (job.state, job.output) == ("completed", "done")

    def test_a_job_that_fails_for_good_all_the_same_is_failed(self, bench: Bench) -> None:
        held = bench.hold()
        bench.cancel(held)
        bench.accept(held.raises(Fail("no")))
        assert bench.look(held).state == "failed"

    def test_a_request_is_not_carried_over_when_the_job_is_brought_back(self, bench: Bench) -> None:
        held = bench.hold(queue="q")
        bench.cancel(held)
        bench.accept(held.raises(Fail("no")))
        bench.retry(held)
        again = bench.claim_one(queue="q")
        assert not again.job.cancel_requested
        bench.send_back(again)
        assert bench.look(held).state == "pending"

    @pytest.mark.parametrize("state", ["completed", "failed", "cancelled"])
    def test_what_is_finished_stays_as_it_is(self, bench: Bench, state: State) -> None:
        job = bench.finish(state)
        (change,) = bench.cancel(job)
        assert (change.done, change.state) == (False, state)
        assert bench.look(job).state == state

    def test_there_is_an_answer_for_each_in_order(self, bench: Bench) -> None:
        waiting, running, ended, absent = bench.add(), bench.hold(), bench.finish(), uuid4()
        changes = bench.cancel(running, absent, waiting, ended, waiting)
        assert [(change.id, change.done, change.state) for change in changes] == [
            (running.id, True, "running"),
            (absent, False, None),
            (waiting.id, True, "cancelled"),
            (ended.id, False, "completed"),
            (waiting.id, True, "cancelled"),
        ]

    def test_a_job_that_keeps_nothing_leaves_nothing(self, bench: Bench) -> None:
        job = bench.add(keep_seconds=0)
        bench.cancel(job)
        assert bench.get(job.id) == []
        assert bench.cancel(job) == [Change(job.id, False, None)]

    def test_an_empty_batch_is_nothing(self, bench: Bench) -> None:
        assert bench.cancel() == []

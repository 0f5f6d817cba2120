"""`run_now`: a pending job becomes due at once."""

from __future__ import annotations

from uuid import uuid4

from ..outcome import Retry
from ..stores.store import Change
from .bench import Bench


class RunningNow:
    def test_a_job_that_waits_for_its_time_is_due(self, bench: Bench) -> None:
        job = bench.add(delay_seconds=3600)
        assert bench.run_now(job) == [Change(job.id, True, "pending", "default")]
        assert bench.claim_one().job == job

    def test_a_job_that_waits_for_its_next_attempt_is_due(self, bench: Bench) -> None:
        held = bench.hold(queue="q")
        bench.accept(held.raises(Retry(after=3600)))
        bench.run_now(held)
        assert bench.claim_one(queue="q").job.attempt == 2

    def test_a_job_that_is_due_already_keeps_its_place(self, bench: Bench) -> None:
        first, second = bench.add(), bench.add()
        bench.pass_time(minutes=1)
        (change,) = bench.run_now(first)
        assert change.done
        assert [held.job for held in bench.claim()] == [first, second]

    def test_others_stay_as_they_are(self, bench: Bench) -> None:
        running, ended, absent = bench.hold(), bench.finish("failed"), uuid4()
        changes = bench.run_now(running, ended, absent)
        assert [(change.id, change.done, change.state) for change in changes] == [
            (running.id, False, "running"),
            (ended.id, False, "failed"),
            (absent, False, None),
        ]
        assert bench.look(running).run_at == running.job.run_at

    def test_an_empty_batch_is_nothing(self, bench: Bench) -> None:
        assert bench.run_now() == []

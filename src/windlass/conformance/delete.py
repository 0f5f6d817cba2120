"""`delete`: a job that does not run can be deleted. Nothing of it is left."""

from __future__ import annotations

from uuid import uuid4

import pytest

from ..unique import Unique
from .bench import Bench, new_job


class Deleting:
    def test_waiting_and_finished_jobs_are_gone(self, bench: Bench) -> None:
        jobs = [bench.add(), bench.add(delay_seconds=60), *map(bench.finish, ("completed", "failed", "cancelled"))]  # type: ignore[arg-type]
        changes = bench.delete(*jobs)
        assert [(change.id, change.done, change.queue) for change in changes] == [
            (job.id, True, job.queue) for job in jobs
        ]
        assert bench.get(*(job.id for job in jobs)) == []
        assert bench.find() == []
        assert bench.counts().total == 0
        bench.pass_time(seconds=61)
        assert bench.claim() == []

    def test_a_running_job_is_not_deleted(self, bench: Bench) -> None:
        held = bench.hold()
        (change,) = bench.delete(held)
        assert (change.id, change.done, change.state) == (held.id, False, "running")
        bench.accept(held.completes())
        assert bench.look(held).state == "completed"

    def test_there_is_an_answer_for_each_in_order(self, bench: Bench) -> None:
        running, waiting, absent = bench.hold(), bench.add(), uuid4()
        changes = bench.delete(absent, running, waiting)
        assert [(change.id, change.done, change.state) for change in changes] == [
            (absent, False, None),
            (running.id, False, "running"),
            (waiting.id, True, "pending"),
        ]

    @pytest.mark.parametrize("until", ["claimed", "finished", "forever", "1h"])
    def test_its_key_is_free_again(self, bench: Bench, until: str) -> None:
        unique = Unique("key", until=until)
        bench.delete(bench.add(unique=unique))
        assert bench.enqueue_one(unique=unique).created

    def test_the_key_of_a_job_that_was_not_deleted_is_not_free(self, bench: Bench) -> None:
        kept, live = Unique("kept", until="forever"), Unique("live")
        bench.delete(bench.hold(unique=kept), bench.hold(unique=live))
        assert not bench.enqueue_one(unique=kept).created
        assert not bench.enqueue_one(unique=live).created

    def test_an_old_job_does_not_free_the_key_that_a_newer_one_holds(self, bench: Bench) -> None:
        unique = Unique("key")
        old = bench.finish(unique=unique)
        bench.add(unique=unique)
        bench.delete(old)
        assert not bench.enqueue_one(unique=unique).created

    def test_its_id_may_be_used_again(self, bench: Bench) -> None:
        job = bench.finish()
        bench.delete(job)
        (answer,) = bench.enqueue(new_job(id=job.id))
        assert answer.created

    def test_an_empty_batch_is_nothing(self, bench: Bench) -> None:
        assert bench.delete() == []

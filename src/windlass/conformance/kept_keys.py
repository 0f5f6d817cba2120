"""Unique keys that stay held after their job has finished: for ever, or for a time."""

from __future__ import annotations

import pytest
from uuid_utils.compat import uuid7

from ..errors import Conflict
from ..unique import Unique
from .bench import Bench, new_job

FOREVER, WINDOW = Unique("key", until="forever"), Unique("key", until="10m")
BOTH = pytest.mark.parametrize("unique", [FOREVER, WINDOW], ids=["forever", "window"])


class KeptKeys:
    @BOTH
    def test_the_second_job_of_a_key_finds_the_first_wherever_it_has_got_to(self, bench: Bench, unique: Unique) -> None:
        first = bench.add(unique=unique)
        assert bench.enqueue_one(unique=unique).job == first
        held = bench.claim_one()
        assert bench.enqueue_one(unique=unique).job == first
        bench.accept(held.completes())
        answer = bench.enqueue_one(unique=unique)
        assert (answer.created, answer.job.id, answer.job.state) == (False, first.id, "completed")
        assert bench.counts().total == 1

    @BOTH
    def test_a_key_is_held_though_nothing_of_its_job_was_kept(self, bench: Bench, unique: Unique) -> None:
        job = bench.finish(unique=unique, keep_seconds=0)
        answer = bench.enqueue_one(unique=unique)
        assert (answer.created, answer.job.id, answer.job.finished) == (False, job.id, True)
        assert bench.find() == []

    def test_a_key_for_ever_is_held_after_its_job_was_pruned(self, bench: Bench) -> None:
        job = bench.finish(unique=FOREVER, keep_seconds=3600)
        bench.pass_time(days=2)
        assert bench.prune() == 1
        answer = bench.enqueue_one(unique=FOREVER)
        assert (answer.created, answer.job.id, answer.job.unique_key) == (False, job.id, "key")

    def test_an_id_sent_again_finds_its_own_key_after_its_job_was_pruned(self, bench: Bench) -> None:
        job = bench.finish(id=uuid7(), unique=FOREVER, keep_seconds=0)
        answer = bench.enqueue_one(id=job.id, unique=FOREVER)
        assert (answer.created, answer.job.id) == (False, job.id)

    def test_a_key_for_a_time_is_free_when_that_is_over(self, bench: Bench) -> None:
        first = bench.add(unique=WINDOW)
        bench.pass_time(minutes=9)
        assert not bench.enqueue_one(unique=WINDOW).created
        bench.pass_time(minutes=2)
        second = bench.add(unique=WINDOW)
        assert second != first
        bench.pass_time(minutes=9)
        assert bench.enqueue_one(unique=WINDOW).job == second

    def test_a_key_whose_time_is_over_can_be_pruned(self, bench: Bench) -> None:
        bench.add(unique=WINDOW)
        bench.add(unique=Unique("for ever", until="forever"))
        bench.pass_time(minutes=11)
        bench.prune()
        assert bench.enqueue_one(unique=WINDOW).created
        assert not bench.enqueue_one(unique=Unique("for ever", until="forever")).created

    def test_an_id_sent_again_does_not_take_its_key_for_another_time(self, bench: Bench) -> None:
        waiting = bench.add(id=uuid7(), unique=WINDOW)
        ended = bench.finish(id=uuid7(), unique=Unique("ended", until="10m"))
        bench.pass_time(minutes=11)
        assert not bench.enqueue_one(id=waiting.id, unique=WINDOW).created
        assert not bench.enqueue_one(id=ended.id, unique=Unique("ended", until="10m")).created
        assert bench.enqueue_one(unique=WINDOW).created
        assert bench.enqueue_one(unique=Unique("ended", until="10m")).created

    @BOTH
    def test_to_delete_a_job_frees_its_key(self, bench: Bench, unique: Unique) -> None:
        bench.delete(bench.finish(unique=unique))
        waiting = bench.add(unique=unique)
        bench.delete(waiting)
        assert bench.enqueue_one(unique=unique).created

    @BOTH
    def test_another_tenant_has_keys_of_its_own(self, bench: Bench, unique: Unique) -> None:
        bench.add(unique=unique)
        assert bench.enqueue_one(unique=unique, tenant="acme").created

    @BOTH
    def test_of_jobs_with_one_key_in_one_batch_the_first_exists(self, bench: Bench, unique: Unique) -> None:
        first, second, other = bench.enqueue(new_job(unique=unique), new_job(unique=unique), new_job())
        assert (first.created, second.created, other.created) == (True, False, True)
        assert second.job == first.job
        assert bench.counts().pending == 2

    @BOTH
    def test_a_conflict_raises_where_that_was_asked_for(self, bench: Bench, unique: Unique) -> None:
        bench.finish(unique=unique)
        with pytest.raises(Conflict):
            bench.enqueue(new_job(), new_job(unique=Unique("key", until=unique.until, on_conflict="raise")))
        assert bench.counts().pending == 0

    def test_keys_that_outlive_their_job_and_keys_of_live_jobs_are_not_the_same(self, bench: Bench) -> None:
        bench.add(unique=FOREVER)
        assert bench.enqueue_one(unique=Unique("key", until="finished")).created
        assert not bench.enqueue_one(unique=WINDOW).created

    def test_a_failed_job_can_come_back_though_its_key_is_kept(self, bench: Bench) -> None:
        (change,) = bench.retry(bench.finish("failed", unique=FOREVER))
        assert change.done
        assert not bench.enqueue_one(unique=FOREVER).created

    @BOTH
    def test_of_many_who_want_a_key_at_once_one_gets_it(self, bench: Bench, unique: Unique) -> None:
        answers = bench.at_once(8, lambda _: bench.enqueue_one(unique=unique))
        assert sorted(answer.created for answer in answers) == [False] * 7 + [True]
        assert len({answer.job.id for answer in answers}) == 1

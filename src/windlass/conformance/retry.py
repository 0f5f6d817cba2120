"""`retry`: failed and cancelled jobs become pending again."""

from __future__ import annotations

from uuid import uuid4

import pytest

from ..lifecycle import State
from ..stores.store import Change
from ..unique import Unique
from .bench import Bench

UNIQUE = Unique("key")


class Retrying:
    @pytest.mark.parametrize("state", ["failed", "cancelled"])
    def test_a_job_comes_back_due_now_with_all_its_attempts(self, bench: Bench, state: State) -> None:
        job = bench.finish(state, max_attempts=1, input='{"n":1}', labels='{"a":"b"}', tenant="acme", priority=3)
        bench.pass_time(hours=1)
        assert bench.retry(job) == [Change(job.id, True, "pending", job.queue)]
        back = bench.look(job)
        assert (back.state, back.attempt, back.finished_at, back.output) == ("pending", 0, None, None)
        assert (back.input, back.labels, back.tenant, back.priority) == ({"n": 1}, {"a": "b"}, "acme", 3)
        assert (back.created_at, back.policy, back.chain_id) == (job.created_at, job.policy, job.id)
        held = bench.claim_one(queue=job.queue)
        assert held.job.attempt == 1
        bench.accept(held.completes())
        assert bench.look(job).state == "completed"

    def test_a_waiting_job_that_was_cancelled_comes_back(self, bench: Bench) -> None:
        job = bench.add(delay_seconds=3600)
        bench.cancel(job)
        bench.retry(job)
        assert bench.claim_one().job == job

    def test_its_story_goes_on(self, bench: Bench) -> None:
        job = bench.finish("failed")
        bench.retry(job)
        back = bench.look(job)
        assert "no use" in str(back.error)
        assert [str(one.error) for one in back.attempts] == ["Fail: no use"]

    def test_a_job_that_had_expired_can_run_again(self, bench: Bench) -> None:
        job = bench.finish("failed", expires_seconds=60)
        bench.pass_time(minutes=5)
        bench.retry(job)
        assert bench.claim_one(queue=job.queue).job == job

    def test_the_attempt_that_failed_holds_nothing_any_more(self, bench: Bench) -> None:
        held = bench.hold(queue="q")
        bench.accept(held.ends("failed"))
        bench.retry(held)
        assert len(bench.settle(held.completes())) == 1
        (renewal,) = bench.renew(held.lease())
        assert renewal.expires_at is None
        assert bench.look(held).state == "pending"

    def test_others_stay_as_they_are(self, bench: Bench) -> None:
        waiting, running, ended, absent = bench.add(), bench.hold(), bench.finish(), uuid4()
        failed = bench.finish("failed")
        changes = bench.retry(waiting, running, ended, absent, failed)
        assert [(change.id, change.done, change.state) for change in changes] == [
            (waiting.id, False, "pending"),
            (running.id, False, "running"),
            (ended.id, False, "completed"),
            (absent, False, None),
            (failed.id, True, "pending"),
        ]
        assert bench.look(ended).state == "completed"
        assert bench.look(running).attempt == 1

    def test_a_key_until_finished_is_held_again(self, bench: Bench) -> None:
        job = bench.finish("failed", unique=UNIQUE)
        bench.retry(job)
        assert bench.enqueue_one(unique=UNIQUE).job == job

    def test_where_another_holds_its_key_a_job_stays_what_it_is(self, bench: Bench) -> None:
        job, other = bench.finish("failed", unique=UNIQUE), bench.finish("failed")
        bench.add(unique=UNIQUE)
        kept, done = bench.retry(job, other)
        assert (kept.id, kept.done, kept.state) == (job.id, False, "failed")
        assert done.done
        assert bench.look(job).state == "failed"
        assert dict(bench.counts()) | {"pending": 2, "failed": 1} == dict(bench.counts())
        assert bench.counts().total == 3

    def test_of_two_that_want_the_same_key_back_one_gets_it(self, bench: Bench) -> None:
        jobs = [bench.finish("failed", unique=UNIQUE) for _ in range(2)]
        assert sorted(change.done for change in bench.retry(*jobs)) == [False, True]
        assert sorted(bench.look(job).state for job in jobs) == ["failed", "pending"]
        assert (bench.counts().failed, bench.counts().pending) == (1, 1)

    def test_a_key_until_claimed_is_gone_for_good(self, bench: Bench) -> None:
        unique = Unique("key", until="claimed")
        job = bench.finish("failed", unique=unique)
        bench.add(unique=unique)
        (change,) = bench.retry(job)
        assert change.done
        assert bench.counts().pending == 2

    def test_of_many_who_retry_at_once_one_does_it(self, bench: Bench) -> None:
        job = bench.finish("failed")
        changes = [change for some in bench.at_once(6, lambda _: bench.retry(job)) for change in some]
        assert sum(change.done for change in changes) == 1
        assert dict(bench.counts()) | {"pending": 1} == dict(bench.counts())
        assert bench.counts().total == 1

    def test_an_empty_batch_is_nothing(self, bench: Bench) -> None:
        assert bench.retry() == []

"""`expire`: a job that was not started in time is cancelled, with an error that says so. No other job changes."""

from __future__ import annotations

from datetime import UTC, datetime

from ..outcome import Retry, Settlement
from ..unique import Unique
from .bench import Bench, new_job

LONG_AGO = datetime(2020, 1, 1, 12, 30, tzinfo=UTC)


class Expiring:
    def test_a_job_that_nobody_started_in_time_is_cancelled_and_says_when(self, bench: Bench) -> None:
        job = bench.add(expires_seconds=60)
        bench.pass_time(seconds=61)
        (settlement,) = bench.expire()
        assert (settlement.id, settlement.state, settlement.token) == (job.id, "cancelled", None)
        after = bench.look(job)
        assert (after.state, after.attempt, after.attempts) == ("cancelled", 0, ())
        assert after.finished_at is not None
        assert after.expires_at is not None
        assert after.error is not None
        assert after.error.type == "Expired"
        assert after.expires_at.isoformat(" ", "milliseconds") in after.error.message
        assert bench.counts().cancelled == 1
        assert bench.expire() == []

    def test_what_has_time_left_or_no_end_is_left_alone(self, bench: Bench) -> None:
        waiting = [bench.add(), bench.add(expires_seconds=600), bench.add(delay_seconds=600)]
        bench.pass_time(seconds=61)
        assert bench.expire() == []
        assert {bench.look(job).state for job in waiting} == {"pending"}

    def test_also_what_is_not_due_yet(self, bench: Bench) -> None:
        job = bench.add(delay_seconds=3600, expires_seconds=60)
        bench.pass_time(seconds=61)
        assert [settlement.id for settlement in bench.expire()] == [job.id]

    def test_what_was_started_in_time_may_end_in_its_own(self, bench: Bench) -> None:
        held = bench.hold(expires_seconds=60)
        bench.finish(expires_seconds=60)
        bench.pass_time(seconds=61)
        assert bench.expire() == []
        bench.accept(held.completes('"late"'))
        assert bench.look(held).output == "late"

    def test_a_job_that_comes_back_too_late_is_cancelled_and_keeps_its_story(self, bench: Bench) -> None:
        held = bench.hold(expires_seconds=60)
        bench.pass_time(seconds=61)
        bench.accept(held.raises(Retry("not yet", after=0)))
        assert bench.claim(queue=held.job.queue) == []
        assert [settlement.id for settlement in bench.expire()] == [held.id]
        job = bench.look(held)
        assert (job.state, job.attempt) == ("cancelled", 1)
        assert "Expired" in str(job.error)
        assert [str(one.error) for one in job.attempts] == ["Retry: not yet"]

    def test_in_a_paused_queue_too(self, bench: Bench) -> None:
        job = bench.add(expires_seconds=60)
        bench.run(lambda: bench.store.pause("default"))
        bench.pass_time(seconds=61)
        assert [settlement.id for settlement in bench.expire()] == [job.id]

    def test_the_keys_that_it_held_are_free_again(self, bench: Bench) -> None:
        for until in ("claimed", "finished"):
            first = bench.add(expires_seconds=60, unique=Unique("key", until=until))
            bench.pass_time(seconds=61)
            assert [settlement.id for settlement in bench.expire()] == [first.id]
            assert bench.enqueue_one(unique=Unique("key", until=until)).created
            bench.delete(*bench.find())

    def test_a_job_that_was_rewritten_has_the_time_that_it_was_given_last(self, bench: Bench) -> None:
        unique = Unique("key", until="claimed", on_conflict="replace")
        job = bench.add(expires_seconds=60, unique=unique)
        bench.pass_time(seconds=50)
        bench.enqueue(new_job(expires_seconds=60, unique=unique))
        bench.pass_time(seconds=30)
        assert bench.expire() == []
        bench.enqueue(new_job(unique=unique))
        bench.pass_time(days=1)
        assert bench.expire() == []
        assert bench.claim_one().id == job.id

    def test_brought_back_it_has_all_the_time_there_is(self, bench: Bench) -> None:
        job = bench.add(expires_seconds=60)
        bench.pass_time(seconds=61)
        bench.expire()
        (change,) = bench.retry(job)
        assert (change.done, change.state) == (True, "pending")
        bench.pass_time(days=1)
        assert bench.expire() == []
        assert bench.claim_one().id == job.id

    def test_a_job_that_keeps_nothing_leaves_nothing(self, bench: Bench) -> None:
        job = bench.add(expires_seconds=60, keep_seconds=0)
        bench.pass_time(seconds=61)
        assert [settlement.id for settlement in bench.expire()] == [job.id]
        assert bench.get(job.id) == []
        assert bench.counts().total == 0

    def test_a_moment_that_was_over_when_it_came(self, bench: Bench) -> None:
        job = bench.add(expires_at=LONG_AGO)
        assert bench.claim() == []
        assert [settlement.id for settlement in bench.expire()] == [job.id]
        assert "2020-01-01 12:30:00.000+00:00" in str(bench.look(job).error)

    def test_no_more_than_asked_for_the_oldest_first_and_none_forgotten(self, bench: Bench) -> None:
        jobs = [bench.add(expires_seconds=60 + 10 * number) for number in (2, 0, 1)]
        jobs += bench.add_many(22, expires_seconds=120)
        lasting = bench.add_many(5)
        assert bench.expire(0) == []
        bench.pass_time(seconds=200)
        assert [settlement.id for settlement in bench.expire(3)] == [jobs[1].id, jobs[2].id, jobs[0].id]
        rounds = [len(settlements) for settlements in iter(lambda: bench.expire(10), [])]
        assert rounds == [10, 10, 2]
        assert (bench.counts().cancelled, bench.counts().pending) == (25, len(lasting))

    def test_of_many_that_do_it_at_once_each_job_has_one(self, bench: Bench) -> None:
        jobs = bench.add_many(60, expires_seconds=60)
        bench.pass_time(seconds=61)

        def expire_all(_: int) -> list[Settlement]:
            return [settlement for some in iter(lambda: bench.expire(10), []) for settlement in some]

        ended = [settlement.id for some in bench.at_once(4, expire_all) for settlement in some]
        ended += [settlement.id for settlement in bench.expire()]  # a thread that found only locked rows stopped early
        assert sorted(ended) == [job.id for job in jobs]
        assert bench.counts().cancelled == 60

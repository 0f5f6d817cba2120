"""A `run_at` in the past means now, in every operation. So no job overtakes those that already wait. Only the job of a
schedule's tick keeps its time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from uuid_utils.compat import uuid7

from ..job import Job
from ..outcome import Retry, Snooze
from ..unique import Unique
from .bench import Bench, new_job
from .chains import going_on

PAST = datetime(2020, 1, 1, tzinfo=UTC)


class OneMoment:
    """All jobs that one operation makes due get the same time. Then priority and id decide their order."""

    @pytest.mark.parametrize("unique", [False, True], ids=["plain", "unique"])
    def test_jobs_of_one_batch(self, bench: Bench, unique: bool) -> None:
        jobs = [new_job(unique=Unique(f"key {n}") if unique else None) for n in range(500)]
        answers = bench.enqueue(*jobs)
        assert len({(answer.job.run_at, answer.job.created_at) for answer in answers}) == 1

    def test_a_job_that_a_batch_replaces(self, bench: Bench) -> None:
        unique = Unique("key", until="claimed", on_conflict="replace")
        bench.add(unique=unique)
        bench.pass_time(seconds=60)
        *added, replaced = bench.enqueue(*(new_job() for _ in range(500)), new_job(unique=unique))
        assert {answer.job.run_at for answer in added} == {replaced.job.run_at}

    def test_jobs_that_are_brought_back_together(self, bench: Bench) -> None:
        jobs = bench.add_many(300)
        bench.cancel(*jobs)
        bench.retry(*jobs)
        assert len({job.run_at for job in bench.get(*(job.id for job in jobs))}) == 1


class PastMoments:
    @pytest.mark.parametrize("count", [1, 5, 60])
    @pytest.mark.parametrize("fields", [{}, {"id_given": True}, {"unique": True}], ids=["plain", "given", "unique"])
    def test_a_job_that_was_to_run_long_ago_is_due_now(self, bench: Bench, count: int, fields: dict[str, Any]) -> None:
        waiting = self._waiting(bench)
        more = {**fields}
        unique = more.pop("unique", False)
        late = bench.enqueue(
            *(new_job(run_at=PAST, unique=Unique(f"key {n}") if unique else None, **more) for n in range(count))
        )
        assert all(answer.job.run_at >= answer.job.created_at > waiting.run_at for answer in late)
        assert [bench.look(answer.job).run_at for answer in late] == [answer.job.run_at for answer in late]
        assert bench.claim_one().job == waiting
        assert len(bench.claim(100)) == count

    def test_what_was_to_be_sent_back_to_the_past_is_due_now(self, bench: Bench) -> None:
        first, second = bench.hold(queue="q"), bench.hold(queue="q")
        waiting = self._waiting(bench, queue="q")
        bench.accept(first.raises(Retry(at=PAST)), second.raises(Snooze(at=PAST)))
        assert all(bench.look(held).run_at > waiting.run_at for held in (first, second))
        assert bench.claim_one(queue="q").job == waiting
        assert len(bench.claim(queue="q")) == 2

    def test_what_is_given_back_keeps_its_place(self, bench: Bench) -> None:
        held = bench.hold(queue="q")
        self._waiting(bench, queue="q")
        bench.accept(held.gives_back())
        assert bench.look(held).run_at == held.job.run_at
        assert bench.claim_one(queue="q").job == held.job

    @pytest.mark.parametrize("fields", [{}, {"unique": Unique("key")}], ids=["plain", "unique"])
    def test_the_next_of_a_chain_gets_ahead_of_nobody(self, bench: Bench, fields: dict[str, Any]) -> None:
        held = bench.hold(queue="q")
        waiting = self._waiting(bench, queue="q")
        bench.accept(going_on(held, run_at=PAST, queue="q", **fields))
        assert bench.claim_one(queue="q").job == waiting
        assert bench.claim_one(queue="q").job.chain_id == held.id

    def test_nor_the_one_that_is_handed_over(self, bench: Bench) -> None:
        held = bench.hold(queue="q")
        waiting = self._waiting(bench, queue="q")
        settlement = going_on(held, run_at=PAST, queue="q")
        bench.run(lambda: bench.store.hand_over(settlement, uuid7(), "worker"))
        (following,) = [job for job in bench.find(chain=held.id) if job.chain_index == 1]
        assert following.run_at > waiting.run_at

    def test_a_job_that_is_replaced_is_due_now(self, bench: Bench) -> None:
        unique = Unique("key", until="claimed", on_conflict="replace")
        bench.add(unique=unique, delay_seconds=3600)
        waiting = self._waiting(bench)
        answer = bench.enqueue_one(unique=unique, run_at=PAST)
        assert answer.job.run_at > waiting.run_at
        assert bench.claim_one().job == waiting
        batch = bench.enqueue(*(new_job(unique=unique, run_at=PAST) for _ in range(2)))
        assert all(one.job.run_at > waiting.run_at for one in batch)

    def test_a_job_that_may_be_put_off_no_longer_keeps_its_place(self, bench: Bench) -> None:
        unique = Unique("key", until="claimed", on_conflict="replace", max_wait="10s")
        first = bench.add(unique=unique, delay_seconds=5)
        bench.pass_time(seconds=20)
        waiting = bench.add()
        answer = bench.enqueue_one(unique=unique, delay_seconds=5)
        assert answer.job.run_at - first.created_at <= timedelta(seconds=10, milliseconds=1)
        assert bench.claim_one().job == first
        assert bench.claim_one().job == waiting

    def test_a_tick_of_a_schedule_is_due_when_it_was(self, bench: Bench) -> None:
        tick = bench.add(run_at=PAST, of_tick=True, id=uuid7())
        assert bench.look(tick).run_at == PAST
        assert bench.claim_one().job == tick

    def _waiting(self, bench: Bench, **fields: Any) -> Job:
        """Add a job that is due and waits, and let a moment pass before the test's own jobs."""
        job = bench.add(**fields)
        bench.pass_time(seconds=1)
        return job

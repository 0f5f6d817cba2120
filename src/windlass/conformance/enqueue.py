"""`enqueue`: a batch is stored as it was given, with all its jobs or none."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta, timezone

import pytest
from uuid_utils.compat import uuid7

from ..job import Job
from ..lifecycle import State
from ..operation import Operation
from ..policy import UNLIMITED, Policy
from .bench import BY_NAME, Bench, columns, facts, new_job

MILLISECOND = timedelta(milliseconds=1)
SOON = datetime(2100, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC)


class Enqueueing:
    def test_a_new_job_is_pending_due_at_once_and_not_yet_attempted(self, bench: Bench) -> None:
        job = bench.look(bench.add())
        assert (job.state, job.attempt, job.error, job.output, job.finished_at) == ("pending", 0, None, None, None)
        assert job.run_at == job.created_at
        assert not job.cancel_requested
        assert [held.job for held in bench.claim()] == [job]

    # A store may insert one job, a few and many by different statements.
    @pytest.mark.parametrize("count", [1, 5, 60])
    def test_the_answer_is_what_is_read_afterwards(self, bench: Bench, count: int) -> None:
        jobs = [
            new_job(run_at=SOON, labels='{"a":"b"}', priority=7, tenant="acme", expires_at=SOON, trace="00-1")
            for _ in range(count)
        ]
        answers = bench.enqueue(*jobs)
        assert all(answer.created for answer in answers)
        read = {job.id: facts(job) for job in bench.get(*(job.id for job in jobs))}
        assert {answer.job.id: facts(answer.job) for answer in answers} == read

    @pytest.mark.parametrize("count", [10, 60])
    def test_answers_come_in_the_order_of_the_jobs(self, bench: Bench, count: int) -> None:
        jobs = [new_job() for _ in range(count)]
        random.Random(7).shuffle(jobs)
        assert [answer.job.id for answer in bench.enqueue(*jobs)] == [job.id for job in jobs]

    @pytest.mark.parametrize("count", [1, 60])
    def test_a_job_keeps_all_that_it_was_given(self, bench: Bench, count: int) -> None:
        policy = Policy(max_attempts=UNLIMITED, lease_seconds=1.5, keep_seconds=12, timeout_seconds=3)
        bench.enqueue(
            *(
                new_job(
                    **columns(policy), type="send", queue="mail", tenant="acme", priority=-9, input='{"to": 1}',
                    labels='{"region":"eu"}', trace="00-abc-01",
                )
                for _ in range(count)
            )
        )  # fmt: skip
        for job in bench.find():
            assert (job.type, job.queue, job.tenant, job.priority) == ("send", "mail", "acme", -9)
            assert (job.input, job.labels, job.trace) == ({"to": 1}, {"region": "eu"}, "00-abc-01")
            assert job.policy == policy
            assert job.max_attempts is None

    def test_a_job_enqueued_by_name_has_no_policy_yet(self, bench: Bench) -> None:
        assert bench.add(**BY_NAME).policy is None

    def test_a_job_is_a_chain_of_its_own(self, bench: Bench) -> None:
        job = bench.look(bench.add())
        assert (job.chain_id, job.chain_index) == (job.id, 0)

    def test_a_due_time_is_kept_to_the_millisecond_and_never_earlier(self, bench: Bench) -> None:
        job = bench.look(bench.add(run_at=SOON))
        assert SOON <= job.run_at < SOON + MILLISECOND

    def test_an_expiry_is_kept_to_the_millisecond_and_never_later(self, bench: Bench) -> None:
        expires_at = bench.look(bench.add(expires_at=SOON)).expires_at
        assert expires_at is not None
        assert SOON - MILLISECOND < expires_at <= SOON

    def test_a_moment_is_the_same_in_every_timezone(self, bench: Bench) -> None:
        elsewhere = datetime(2100, 1, 1, 12, tzinfo=timezone(timedelta(hours=5, minutes=30)))
        job = bench.look(bench.add(run_at=elsewhere))
        assert job.run_at == elsewhere
        assert job.run_at.utcoffset() == timedelta()

    @pytest.mark.parametrize("run_at", [datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, tzinfo=UTC)])
    def test_the_first_and_the_last_year_can_be_stored_and_listed(self, bench: Bench, run_at: datetime) -> None:
        job = bench.add(run_at=run_at)
        assert bench.look(job).run_at == max(run_at, job.created_at)
        assert bench.find() == [job]

    @pytest.mark.parametrize("count", [1, 60])
    def test_delay_and_expiry_count_from_the_stores_clock(self, bench: Bench, count: int) -> None:
        bench.pass_time(days=100)
        for job in bench.add_many(count, delay_seconds=90, expires_seconds=900):
            assert timedelta(seconds=90) <= job.run_at - job.created_at <= timedelta(seconds=90) + MILLISECOND
            assert job.expires_at is not None
            assert timedelta(seconds=900) - MILLISECOND <= job.expires_at - job.created_at <= timedelta(seconds=900)

    @pytest.mark.parametrize("count", [2, 60])
    def test_what_fails_after_the_jobs_were_added_takes_them_back(self, bench: Bench, count: int) -> None:
        def add_and_fail() -> Operation[None]:
            yield from bench.store.enqueue([new_job() for _ in range(count)])
            raise RuntimeError("on second thoughts")

        with pytest.raises(RuntimeError):
            bench.run(add_and_fail)
        assert bench.find() == []
        assert bench.counts().total == 0

    def test_a_thousand_go_in_at_once(self, bench: Bench) -> None:
        jobs = [new_job(type=f"type-{number % 3}") for number in range(1000)]
        assert all(answer.created for answer in bench.enqueue(*jobs))
        assert bench.counts().pending == 1000

    def test_an_empty_batch_is_nothing(self, bench: Bench) -> None:
        assert bench.enqueue() == []


class Ids:
    """Two jobs with the same id are one job, in every state of the first."""

    def send_again(self, bench: Bench, job: Job) -> None:
        """Check that the answer is the existing job, and that there is no other."""
        answer = bench.enqueue_one(id=job.id, input='{"again":true}', queue=job.queue)
        assert not answer.created
        assert facts(answer.job) == facts(bench.look(job))
        assert answer.job.input == {}
        assert bench.find() == [job]
        assert bench.counts().total == 1

    def test_an_id_sent_twice_is_one_job(self, bench: Bench) -> None:
        self.send_again(bench, bench.add(id=uuid7()))

    def test_an_id_sent_while_its_job_runs_is_one_job(self, bench: Bench) -> None:
        held = bench.hold(id=uuid7())
        self.send_again(bench, held.job)
        assert bench.look(held).state == "running"

    def test_an_id_sent_after_its_job_was_sent_back_is_one_job(self, bench: Bench) -> None:
        held = bench.hold(id=uuid7())
        bench.send_back(held, delay_seconds=60)
        self.send_again(bench, held.job)

    @pytest.mark.parametrize("state", ["completed", "failed", "cancelled"])
    def test_an_id_sent_after_its_job_has_finished_does_not_run_again(self, bench: Bench, state: State) -> None:
        job = bench.finish(state, id=uuid7())
        self.send_again(bench, job)
        assert bench.claim(queue=job.queue) == []
        assert bench.look(job).state == state

    def test_an_id_sent_after_its_job_was_brought_back_is_one_job(self, bench: Bench) -> None:
        job = bench.finish("failed", id=uuid7())
        bench.retry(job)
        self.send_again(bench, job)

    def test_an_id_that_we_made_can_be_sent_again_too(self, bench: Bench) -> None:
        jobs = [new_job() for _ in range(60)]
        bench.enqueue(*jobs[:40])
        (held,) = bench.claim(1)
        bench.accept(held.completes())
        answers = bench.enqueue(*jobs, resent=True)
        assert [answer.created for answer in answers] == [False] * 40 + [True] * 20
        assert (bench.counts().pending, bench.counts().completed) == (59, 1)

    def test_an_id_twice_in_one_batch_is_one_job(self, bench: Bench) -> None:
        id = uuid7()
        first, second = bench.enqueue(new_job(id=id, input='{"n":1}'), new_job(id=id, input='{"n":2}'))
        assert (first.created, second.created) == (True, False)
        assert second.job == first.job == bench.look(id)
        assert bench.look(id).input == {"n": 1}

    def test_a_known_id_does_not_hold_up_the_others_of_its_batch(self, bench: Bench) -> None:
        known = bench.add(id=uuid7())
        answers = bench.enqueue(*(new_job() for _ in range(30)), new_job(id=known.id), new_job(id=uuid7()))
        assert [answer.created for answer in answers] == [True] * 30 + [False, True]
        assert bench.counts().pending == 32

    def test_an_id_sent_by_many_at_once_is_one_job(self, bench: Bench) -> None:
        id = uuid7()
        answers = bench.at_once(8, lambda _: bench.enqueue_one(id=id))
        assert sorted(answer.created for answer in answers) == [False] * 7 + [True]
        assert bench.counts().total == 1

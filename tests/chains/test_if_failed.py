"""What becomes of a job when one that it waits for fails."""

from __future__ import annotations

from typing import Any

import pytest

from windlass import Attempt, Continue, Fail, InvalidInput, JobCancelled, Windlass


def with_tasks(app: Windlass) -> None:
    @app.task
    def fetch(number: int) -> int:
        if number < 0:
            raise Fail("no such page")
        return number

    @app.task
    def add(attempt: Attempt) -> list[Any]:
        return attempt.blockers

    @app.task
    def loop(number: int) -> Continue:
        return Continue(fetch.call(number))


def test_cancel_ends_the_job_and_says_why(app: Windlass) -> None:
    with_tasks(app)
    bad, good = app.enqueue("fetch", {"number": -1}), app.enqueue("fetch", {"number": 1})
    job = app.enqueue("add", after=[bad, good], if_failed="cancel")
    further = app.enqueue("add", after=[job], if_failed="cancel")
    app.run_worker(until_idle=True)
    for one, blocker in ((job, bad), (further, job)):
        now = one.refresh()
        assert now.state == "cancelled"
        assert now.error is not None
        assert str(blocker.id) in now.error
        assert str(blocker.id) in app.explain(one.id)
    with pytest.raises(JobCancelled, match="which it waited for"):
        job.result(timeout=60)


def test_run_gives_none_for_what_failed(app: Windlass) -> None:
    with_tasks(app)
    numbers = [3, -1, 5]
    job = app.enqueue("add", after=[app.enqueue("fetch", {"number": n}) for n in numbers], if_failed="run")
    app.run_worker(until_idle=True)
    assert job.refresh().output == [3, None, 5]
    assert [(one.done, one.failed) for one in app.blockers(job.id)] == [(True, False), (True, True), (True, False)]


def test_a_chain_that_fails_further_on_counts(app: Windlass) -> None:
    with_tasks(app)
    job = app.enqueue("add", after=[app.enqueue("loop", {"number": -1})], if_failed="run")
    app.run_worker(until_idle=True)
    assert job.refresh().output == [None]


async def test_a_blocker_is_ended_by_a_person(app: Windlass) -> None:
    with_tasks(app)
    blockers = [await app.aenqueue("fetch", {"number": 1}, delay="1h") for _ in range(3)]
    jobs = [await app.aenqueue("add", after=[one], if_failed="cancel") for one in blockers]
    await app.afail(blockers[0].id, "by hand")
    await app.acancel(blockers[1].id)
    assert await app.acancel_many(type="fetch") == 1
    assert [(await job.arefresh()).state for job in jobs] == ["cancelled"] * 3


def test_waiting_is_what_happens_if_nothing_is_said(app: Windlass) -> None:
    with_tasks(app)
    bad = app.enqueue("fetch", {"number": -1})
    jobs = [app.enqueue("add", after=[bad]), app.enqueue("add", after=[bad], if_failed="wait")]
    app.run_worker(until_idle=True)
    assert [job.refresh().state for job in jobs] == ["blocked", "blocked"]
    assert jobs[0].if_failed == "wait"


def test_explain_says_what_will_follow(app: Windlass) -> None:
    with_tasks(app)
    before = app.enqueue("fetch", {"number": 1}, delay="1h")
    for then, text in (("cancel", "it is cancelled"), ("run", "it runs without it")):
        job = app.enqueue("add", after=[before], if_failed=then)
        assert text in app.explain(job.id)
        assert f"if_failed={then!r}" in app.explain(job.id)


def test_the_error_says_why(app: Windlass) -> None:
    with_tasks(app)
    before = app.enqueue("fetch", {"number": 1})
    for wrong in ("fail", "", True, ["run"]):
        with pytest.raises(InvalidInput, match="'wait', 'cancel' or 'run'"):
            app.enqueue("add", after=[before], if_failed=wrong)
    with pytest.raises(InvalidInput, match="give after="):
        app.enqueue("add", if_failed="run")
    assert app.enqueue("add", after=[], if_failed="run").state == "pending"


def test_completed_by_hand_the_chain_continues(app: Windlass) -> None:
    with_tasks(app)
    fetch = app.tasks["fetch"]
    first = app.enqueue("fetch", {"number": 1}, delay="1h", tenant="acme")
    job = app.enqueue("add", after=[first])
    done = app.complete(first.id, Continue(fetch.call(9)))
    assert (done.state, done.output) == ("completed", None)
    (second,) = [one for one in app.list(chain=first.id) if one.chain_index == 1]
    assert (second.chain_id, second.tenant, second.state) == (first.id, "acme", "pending")
    assert job.refresh().state == "blocked"
    app.run_worker(until_idle=True)
    assert (first.result(timeout=60), job.refresh().output) == (9, [9])


def test_a_worker_loses_the_job_whose_chain_someone_continues(app: Windlass) -> None:
    with_tasks(app)
    first = app.enqueue("fetch", {"number": 1})
    (attempt,) = app.claim(1)
    app.complete(first.id, Continue(app.tasks["fetch"].call(9)))
    with pytest.raises(Exception, match="finished"):
        attempt.complete(5)
    app.run_worker(until_idle=True)
    assert first.result(timeout=60) == 9


def test_a_continuation_that_cannot_be_leaves_the_job_as_it_was(app: Windlass) -> None:
    with_tasks(app)
    first = app.enqueue("fetch", {"number": 1})
    with pytest.raises(InvalidInput, match="wait for its own chain"):
        app.complete(first.id, Continue(app.tasks["fetch"].using(after=[first]).call(9)))
    assert first.refresh().state == "pending"


def test_a_block_cancels_another_job_with_its_own_end(app: Windlass) -> None:
    other = app.enqueue("other", delay="1h")

    @app.task(max_attempts=1)
    def give_up(attempt: Attempt, fail: bool) -> None:
        with attempt.transaction() as connection:
            app.cancel(other.id, connection=connection)
            assert app.require(other.id).state == "pending"
            job = app.get(other.id, connection=connection)
            assert job is not None
            assert job.state == "cancelled"
            if fail:
                raise RuntimeError("not yet")

    for fail, state in ((True, "pending"), (False, "cancelled")):
        job = give_up.enqueue(fail)
        app.run_worker(until_idle=True)
        assert job.refresh().state == ("failed" if fail else "completed"), job.refresh().error
        assert other.refresh().state == state


async def test_an_async_block_completes_another_job_with_its_own_end(app: Windlass) -> None:
    other = await app.aenqueue("other", delay="1h")

    @app.task(max_attempts=1)
    async def approve(attempt: Attempt) -> None:
        async with attempt.transaction() as connection:
            await app.acomplete(other.id, "approved", connection=connection)

    job = await approve.aenqueue()
    await app.arun_worker(until_idle=True)
    assert (await job.arefresh()).state == "completed"
    assert (await other.arefresh()).output == "approved"

"""The graph as data: blockers, dependents, chains; and deleting along it."""

from __future__ import annotations

from uuid import uuid4

import pytest

from windlass import Conflict, Continue, InvalidInput, Job, JobNotFound, Windlass


def with_tasks(app: Windlass) -> None:
    @app.task(queue="sums")
    def double(number: int) -> int:
        return 2 * number

    @app.task
    def start(number: int) -> Continue:
        return Continue(double.call(number))


def test_blockers_are_told_in_order_with_what_came_of_them(app: Windlass) -> None:
    with_tasks(app)
    one, two = app.enqueue("start", {"number": 1}), app.enqueue("double", {"number": 5})
    later = app.enqueue("double", {"number": 7}, delay="1h")
    job = app.enqueue("double", {"number": 0}, after=[two, one, later])
    assert [(one.id, one.done, one.output, one.state) for one in app.blockers(job.id)] == [
        (two.id, False, None, "pending"),
        (one.id, False, None, "pending"),
        (later.id, False, None, "pending"),
    ]
    app.run_worker(until_idle=True)
    first, second, third = app.blockers(job.id)
    assert (first.id, first.done, first.failed, first.output, first.type) == (two.id, True, False, 10, "double")
    assert (second.id, second.chain_id, second.output) == (one.id, one.id, 2)
    assert second.job is not None
    assert (second.job.chain_index, second.job.type, second.job.refresh().state) == (1, "double", "completed")
    assert (third.done, third.state) == (False, "pending")
    assert app.blockers(one.id) == []


def test_a_blocker_in_the_middle_of_its_chain_shows_its_newest_job(app: Windlass) -> None:
    with_tasks(app)
    one = app.enqueue("start", {"number": 1})
    job = app.enqueue("double", {"number": 0}, after=[one])
    app.complete(one.id, Continue(app.tasks["double"].using(delay="1h").call(3)))
    (blocker,) = app.blockers(job.id)
    assert blocker.job is not None
    assert (blocker.job.chain_index, blocker.state, blocker.done) == (1, "pending", False)


def test_a_blocker_that_is_no_longer_kept(app: Windlass) -> None:
    with_tasks(app)
    gone = app.enqueue("double", {"number": 4}, keep=0)
    job = app.enqueue("double", {"number": 0}, after=[gone])
    app.run_worker(until_idle=True)
    (blocker,) = app.blockers(job.id)
    assert (blocker.done, blocker.output, blocker.job, blocker.state) == (True, 8, None, None)


async def test_dependents_are_those_that_wait_and_those_that_have(app: Windlass) -> None:
    with_tasks(app)
    one = await app.aenqueue("start", {"number": 1})
    jobs = [await app.aenqueue("double", {"number": n}, after=[one]) for n in range(3)]
    assert await app.adependents(one.id) == jobs
    await app.arun_worker(until_idle=True)
    found = await app.adependents(one.id)
    assert found == jobs
    assert {job.state for job in found} == {"completed"}
    last = next(job for job in await app.alist(chain=one.id) if job.chain_index == 1)
    assert await app.adependents(last.id) == jobs
    assert await app.adependents(jobs[0].id) == []
    assert [one.output for one in await app.ablockers(jobs[0].id)] == [2]


def test_chains_by_type_and_state(app: Windlass) -> None:
    with_tasks(app)
    jobs = [app.enqueue("start", {"number": n}) for n in range(5)]
    single = app.enqueue("double", {"number": 1}, tenant="acme")
    app.run_worker(until_idle=True)
    waiting = app.enqueue("start", {"number": 9}, delay="1h")
    page = app.chains(type="start")
    assert [one.id for one in page] == [waiting.id, *(job.id for job in reversed(jobs))]
    assert page.next_cursor is None
    newest, *rest = page
    assert (newest.state, newest.steps, newest.finished_at) == ("pending", 1, None)
    assert {(one.type, one.queue, one.state, one.steps) for one in rest} == {("start", "default", "completed", 2)}
    assert [one.output for one in rest] == [8, 6, 4, 2, 0]
    assert isinstance(rest[0].job, Job)
    assert rest[0].job.refresh().chain_index == 1
    assert [one.id for one in app.chains(state="pending")] == [waiting.id]
    assert [one.id for one in app.chains(tenant="acme")] == [single.id]
    assert len(app.chains(queue="sums")) == 1
    first = app.chains(limit=4)
    assert first.next_cursor is not None
    both = [*first, *app.chains(limit=4, cursor=first.next_cursor)]
    assert [one.id for one in both] == [one.id for one in app.chains()]


def test_wrong_questions_about_the_graph(app: Windlass) -> None:
    with_tasks(app)
    for ask in (app.blockers, app.dependents):
        with pytest.raises(JobNotFound):
            ask(uuid4())
        with pytest.raises(InvalidInput):
            ask("x")
    for wrong in ({"state": "lost"}, {"limit": 0}, {"cursor": "x"}, {"type": ""}):
        with pytest.raises(InvalidInput):
            app.chains(**wrong)


def test_delete_with_cascade(app: Windlass) -> None:
    with_tasks(app)
    root = app.enqueue("start", {"number": 1})
    sides = [app.enqueue("double", {"number": n}, after=[root]) for n in (1, 2)]
    shared = app.enqueue("double", {"number": 3}, delay="1h")
    last = app.enqueue("double", {"number": 0}, after=[*sides, shared])
    other = app.enqueue("double", {"number": 0}, after=[shared])
    app.run_worker(until_idle=True)
    with pytest.raises(Conflict):
        app.delete(shared.id, cascade=True)
    last.delete(cascade=True)
    assert {job.id for job in app.list()} == {shared.id, other.id}
    app.delete(other.id)
    assert {job.id for job in app.list()} == {shared.id}

"""Acting on jobs, and reading them, in the caller's transaction: it holds if, and only if, that commits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest

from tests.caller_transactions import autocommit
from tests.caller_transactions.kinds import KINDS, name_of
from tests.caller_transactions.lender import Lender
from tests.caller_transactions.place import Place, wait_until
from windlass import Conflict, Continue, InvalidInput, Job, JobNotFound, Windlass
from windlass.stores.wakeup import Hint


async def act(lender: Lender, app: Windlass, name: str, *args: Any, **options: Any) -> Any:
    """`app.name(…, connection=…)`, or its twin."""
    options["connection"] = lender.connection
    if lender.is_async:
        return await getattr(app, f"a{name}")(*args, **options)
    return getattr(app, name)(*args, **options)


def forget_hints(place: Place) -> None:
    """What was done so far has been heard of by then."""
    place.hears_nothing()
    place.heard.clear()


def failed(place: Place) -> Job:
    job = place.new_task().enqueue(1)
    return place.app.fail(job.id, "no use")


def delayed(place: Place) -> Job:
    return place.new_task().using(delay="1h").enqueue(1)


def waiting(place: Place) -> Job:
    return place.new_task().enqueue(1)


def running(place: Place) -> Job:
    place.new_task().enqueue(1)
    (attempt,) = place.app.claim(1, queues=[place.queue])
    return attempt.job


ACTIONS: dict[str, tuple[Callable[[Place], Job], str, tuple[Any, ...], str]] = {
    "complete": (waiting, "complete", (7,), "completed"),
    "complete a running one": (running, "complete", (7,), "completed"),
    "fail": (waiting, "fail", ("it bounced",), "failed"),
    "cancel": (waiting, "cancel", (), "cancelled"),
    "retry": (failed, "retry", (), "pending"),
    "run now": (delayed, "run_now", (), "pending"),
}


@pytest.mark.parametrize("action", ACTIONS)
async def test_it_holds_when_the_transaction_commits_and_not_before(place: Place, lender: Lender, action: str) -> None:
    make, name, args, state = ACTIONS[action]
    before, note = make(place), uuid4().hex
    await lender.begin()
    await lender.write(note)
    inside = await act(lender, place.app, name, before.id, *args)
    assert inside.state == state
    now = place.app.require(before.id)
    assert (now.state, now.run_at) == (before.state, before.run_at)
    await lender.commit()
    now = place.app.require(before.id)
    assert (now.state, now.run_at, now.output, now.error) == (state, inside.run_at, inside.output, inside.error)
    assert note in place.notes()


@pytest.mark.parametrize("action", ACTIONS)
async def test_nothing_of_it_is_left_after_a_rollback(place: Place, lender: Lender, action: str) -> None:
    make, name, args, _ = ACTIONS[action]
    before = make(place)
    forget_hints(place)
    await lender.begin()
    await act(lender, place.app, name, before.id, *args)
    await lender.rollback()
    now = place.app.require(before.id)
    assert (now.state, now.run_at, now.worker) == (before.state, before.run_at, before.worker)
    assert place.hears_nothing()


async def test_an_attempt_that_is_completed_first_in_a_transaction_is_rolled_back_with_it(
    place: Place, lender: Lender
) -> None:
    place.new_task().enqueue(1)
    (attempt,) = place.app.claim(1, queues=[place.queue])
    await lender.begin()
    if lender.is_async:
        await attempt.acomplete(7, connection=lender.connection)
    else:
        attempt.complete(7, connection=lender.connection)
    await lender.rollback()
    assert place.app.require(attempt.job.id).state == "running"


async def test_a_job_is_deleted_with_the_transaction(place: Place, lender: Lender) -> None:
    job = waiting(place)
    for end, left in ((lender.rollback, [job]), (lender.commit, [])):
        await lender.begin()
        await lender.write(uuid4().hex)
        await act(lender, place.app, "delete", job.id)
        assert await act(lender, place.app, "get", job.id) is None
        assert place.jobs() == [job]
        await end()
        assert place.jobs() == left


async def test_get_and_list_see_what_the_transaction_has_enqueued(place: Place, lender: Lender) -> None:
    task = place.new_task()
    await lender.begin()
    await lender.write(uuid4().hex)
    job = await lender.enqueue(task, 1)
    assert await act(lender, place.app, "get", job.id) == job
    assert list(await act(lender, place.app, "list", queue=place.queue)) == [job]
    assert place.app.get(job.id) is None
    assert place.jobs() == []
    await lender.rollback()
    assert place.app.get(job.id) is None


async def test_hints_are_heard_after_the_commit(place: Place, lender: Lender) -> None:
    job = failed(place)
    forget_hints(place)
    await lender.begin()
    await lender.write(uuid4().hex)
    await act(lender, place.app, "retry", job.id)
    assert place.hears_nothing()
    await lender.commit()
    place.wait_for_hint()


async def test_a_worker_hears_of_it_after_the_commit(place: Place, lender: Lender) -> None:
    if place.is_sqlite:
        return await test_hints_are_heard_after_the_commit(place, lender)
    job = running(place)
    forget_hints(place)
    told = Hint("told", str(job.id))
    await lender.begin()
    await act(lender, place.app, "complete", job.id, 7)
    assert place.hears_nothing()
    assert told not in place.heard
    await lender.commit()
    wait_until(lambda: told in place.heard)


async def test_a_completion_that_continues_creates_the_next_job_with_it(place: Place, lender: Lender) -> None:
    job = waiting(place)
    following = Continue(place.remember.using(queue=place.queue).call(2))
    for end in (lender.rollback, lender.commit):
        await lender.begin()
        await lender.write(uuid4().hex)
        done = await act(lender, place.app, "complete", job.id, following)
        assert done.state == "completed"
        assert place.jobs() == [job]
        await end()
    first, second = sorted(place.jobs(), key=lambda one: one.chain_index)
    assert (first.id, first.state, second.state, second.input) == (job.id, "completed", "pending", {"number": 2})
    assert (second.chain_id, second.chain_index) == (job.id, 1)


async def test_a_refusal_leaves_the_transaction_usable(place: Place, lender: Lender) -> None:
    job, note = waiting(place), uuid4().hex
    place.app.complete(job.id, 1)
    await lender.begin()
    await lender.write(note)
    for name, args in (("complete", (2,)), ("fail", ("late",)), ("cancel", ()), ("retry", ()), ("run_now", ())):
        with pytest.raises(Conflict):
            await act(lender, place.app, name, job.id, *args)
    for name, args in (("complete", (2,)), ("cancel", ()), ("retry", ()), ("run_now", ()), ("delete", ())):
        with pytest.raises(JobNotFound):
            await act(lender, place.app, name, uuid4(), *args)
    await lender.commit()
    assert note in place.notes()
    assert place.app.require(job.id).output == 1


@pytest.mark.parametrize("kind", autocommit.KINDS, ids=name_of)
async def test_without_a_transaction_it_holds_at_once(place: Place, lender: Lender) -> None:
    job = waiting(place)
    assert (await act(lender, place.app, "fail", job.id, "no")).state == "failed"
    assert place.app.require(job.id).state == "failed"
    assert (await act(lender, place.app, "retry", job.id)).state == "pending"
    assert (await act(lender, place.app, "complete", job.id, 3)).output == 3
    assert place.app.require(job.id).state == "completed"
    assert list(await act(lender, place.app, "list", queue=place.queue)) == [job]
    await act(lender, place.app, "delete", job.id)
    assert place.jobs() == []


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.__name__ in ("Psycopg", "Sqlite", "Pymongo")])
@pytest.mark.parametrize("name", ["get", "complete", "cancel", "retry", "run_now", "delete"])
async def test_no_connection_is_not_a_transaction(place: Place, lender: Lender, name: str) -> None:
    job = waiting(place)
    with pytest.raises(InvalidInput, match="connection=None"):
        getattr(place.app, name)(job.id, connection=None)
    with pytest.raises(InvalidInput, match="connection=None"):
        await getattr(place.app, f"a{name}")(job.id, connection=None)
    assert place.app.require(job.id).state == "pending"

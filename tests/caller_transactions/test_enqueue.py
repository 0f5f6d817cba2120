"""In the caller's transaction: the job, and the hint, are there if, and only if, it commits."""

from __future__ import annotations

from uuid import uuid4

import pytest

from tests.caller_transactions.kinds import WITH_SAVEPOINTS, name_of
from tests.caller_transactions.lender import Lender
from tests.caller_transactions.place import Place


async def test_a_commit_brings_the_job_the_hint_and_the_callers_write(place: Place, lender: Lender) -> None:
    task, note = place.new_task(), uuid4().hex
    await lender.begin()
    await lender.write(note)
    job = await lender.enqueue(task, 1)
    assert job.created
    assert (job.state, job.input, job.queue) == ("pending", {"number": 1}, place.queue)
    assert place.jobs() == []
    assert place.hears_nothing()
    await lender.commit()
    place.wait_for_hint()
    (found,) = place.jobs()
    assert found == job
    assert (found.created_at, found.run_at) == (job.created_at, job.run_at)
    assert note in place.notes()


async def test_a_rollback_leaves_no_job_no_hint_and_no_write(place: Place, lender: Lender) -> None:
    task, note = place.new_task(), uuid4().hex
    await lender.begin()
    await lender.enqueue(task, 1)
    await lender.write(note)
    await lender.enqueue(task.using(unique=f"key-{note}", delay="1h"), 2)
    await lender.rollback()
    assert place.hears_nothing()
    assert place.jobs() == []
    assert note not in place.notes()


async def test_one_connection_serves_many_transactions(place: Place, lender: Lender) -> None:
    """Drivers prepare what they see often: nothing of that may stand in the way of the next."""
    task = place.new_task()
    expected = []
    for number in range(16):
        await lender.begin()
        await lender.write(uuid4().hex)
        await lender.enqueue(task.using(priority=number), number)
        if number % 2:
            await lender.commit()
            expected.append(number)
        else:
            await lender.rollback()
    assert sorted(job.priority for job in place.jobs()) == expected


async def test_a_bulk_joins_the_transaction(place: Place, lender: Lender) -> None:
    task, notes = place.new_task(), [uuid4().hex, uuid4().hex]
    for note, end in zip(notes, (lender.rollback, lender.commit), strict=True):
        await lender.begin()
        jobs = await lender.enqueue_many(place.app, [task.call(number) for number in range(50)])
        assert all(job.created for job in jobs)
        await lender.write(note)
        await end()
    assert [job.input["number"] for job in jobs] == list(range(50))
    assert set(place.jobs()) == set(jobs)
    assert notes[0] not in place.notes()
    assert notes[1] in place.notes()


@pytest.mark.parametrize("kind", WITH_SAVEPOINTS, ids=name_of)
async def test_a_savepoint_takes_the_job_with_it(place: Place, lender: Lender) -> None:
    task, note = place.new_task(), uuid4().hex
    await lender.begin()
    await lender.write(note)
    await lender.set_savepoint()
    await lender.enqueue(task, 1)
    await lender.roll_back_to_savepoint()
    await lender.set_savepoint()
    kept = await lender.enqueue(task, 2)
    await lender.release_savepoint()
    await lender.commit()
    assert place.jobs() == [kept]
    assert note in place.notes()

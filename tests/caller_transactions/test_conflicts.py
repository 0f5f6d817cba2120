"""A conflict is never an error in the caller's transaction: it goes on, and commits what is its own."""

from __future__ import annotations

from uuid import uuid4

import pytest

from tests.caller_transactions.lender import Lender
from tests.caller_transactions.place import Place
from windlass import Conflict, Unique


async def test_a_key_that_is_taken_is_kept(place: Place, lender: Lender) -> None:
    task, note = place.new_task(), uuid4().hex
    await lender.begin()
    for until in ("claimed", "finished", "forever", "1h"):
        unique = task.using(unique=Unique(f"{until}-{note}", until=until))
        ours = await lender.enqueue(unique, 1)
        found = await lender.enqueue(unique, 2)
        assert ours.created
        assert (found, found.created, found.input) == (ours, False, {"number": 1})
    await lender.commit()
    held = set(place.jobs())
    await lender.begin()
    for until in ("claimed", "finished", "forever", "1h"):
        unique = task.using(unique=Unique(f"{until}-{note}", until=until))
        assert not (await lender.enqueue(unique, 3)).created
    await lender.write(note)
    await lender.commit()
    assert set(place.jobs()) == held
    assert len(held) == 4
    assert note in place.notes()


async def test_a_key_that_is_taken_raises_where_that_is_asked_for(place: Place, lender: Lender) -> None:
    task, note = place.new_task(), uuid4().hex
    for until in ("finished", "forever"):
        task.using(unique=Unique(f"{until}-{note}", until=until)).enqueue(1)
    held = set(place.jobs())
    await lender.begin()
    for until in ("finished", "forever"):
        loud = task.using(unique=Unique(f"{until}-{note}", until=until, on_conflict="raise"))
        with pytest.raises(Conflict, match=note):
            await lender.enqueue(loud, 2)
        with pytest.raises(Conflict, match=note):  # all of a batch, or nothing of it
            await lender.enqueue_many(place.app, [task.call(3), loud.call(4)])
    await lender.write(note)
    await lender.commit()
    assert set(place.jobs()) == held
    assert note in place.notes()


async def test_a_key_that_is_taken_is_replaced_if_the_transaction_commits(place: Place, lender: Lender) -> None:
    task, note = place.new_task(), uuid4().hex
    debounced = task.using(unique=Unique(f"key-{note}", until="claimed", on_conflict="replace"))
    holder = debounced.enqueue(1)
    for number, end in ((2, lender.rollback), (3, lender.commit)):
        await lender.begin()
        found = await lender.enqueue(debounced.using(delay="1h"), number)
        assert (found, found.created, found.input) == (holder, False, {"number": number})
        await lender.write(note)
        await end()
    (left,) = place.jobs()
    assert (left, left.input) == (holder, {"number": 3})
    assert note in place.notes()


async def test_an_id_that_is_sent_twice_is_one_job(place: Place, lender: Lender) -> None:
    task, note = place.new_task(), uuid4().hex
    before = task.enqueue(1)
    own = task.using(id=uuid4())
    await lender.begin()
    again = await lender.enqueue(task.using(id=before.id), 1)
    assert (again, again.created) == (before, False)
    assert (await lender.enqueue(own, 2)).created
    assert not (await lender.enqueue(own, 2)).created
    await lender.write(note)
    await lender.commit()
    assert [job.input["number"] for job in place.jobs() if job != before] == [2]
    assert note in place.notes()


async def test_a_bulk_with_keys_some_of_them_taken(place: Place, lender: Lender) -> None:
    task, note = place.new_task(), uuid4().hex
    keyed = [task.using(unique=f"{note}-{number}").call(number) for number in range(50)]
    taken = place.app.enqueue_many(keyed[::2])
    await lender.begin()
    jobs = await lender.enqueue_many(place.app, [*keyed, keyed[0], keyed[1]])
    assert jobs[0:50:2] == taken
    assert [job.created for job in jobs] == [False, True] * 25 + [False, False]
    await lender.write(note)
    await lender.commit()
    assert sorted(job.input["number"] for job in place.jobs()) == list(range(50))
    assert note in place.notes()

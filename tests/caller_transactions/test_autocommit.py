"""A connection without a transaction: an enqueue is one of ours, committed, and leaves none behind."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import uuid4

import pytest

from tests.caller_transactions import autocommit
from tests.caller_transactions.kinds import name_of
from tests.caller_transactions.lender import Lender
from tests.caller_transactions.place import Place
from windlass import Conflict, Unique
from windlass.operation import Operation
from windlass.stores.wakeup import Hint

pytestmark = pytest.mark.parametrize("kind", autocommit.KINDS, ids=name_of)


async def test_a_job_is_there_at_once(place: Place, lender: Lender) -> None:
    task, note = place.new_task(), uuid4().hex
    job = await lender.enqueue(task, 1)
    assert place.jobs() == [job]
    place.wait_for_hint()
    bulk = await lender.enqueue_many(place.app, [task.call(number) for number in range(50)])
    assert len(place.jobs()) == 51
    again = await lender.enqueue(task.using(id=bulk[0].id), 0)
    assert not again.created
    await lender.write(note)
    assert note in place.notes()


async def test_a_batch_is_all_or_nothing(place: Place, lender: Lender) -> None:
    task, note = place.new_task(), uuid4().hex
    loud = task.using(unique=Unique(f"key-{note}", on_conflict="raise"))
    holder = loud.enqueue(1)
    with pytest.raises(Conflict):
        await lender.enqueue_many(place.app, [task.call(2), loud.call(3)])
    await lender.write(note)
    assert note in place.notes()
    assert place.jobs() == [holder]


async def test_an_interruption_leaves_no_transaction_open(
    place: Place, lender: Lender, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(hints: Sequence[Hint]) -> Operation[None]:
        yield from ()
        raise KeyboardInterrupt

    task, note = place.new_task(), uuid4().hex
    with monkeypatch.context() as patch:
        patch.setattr(place.app.store, "hint", interrupted)
        with pytest.raises(KeyboardInterrupt):
            await lender.enqueue_many(place.app, [task.call(1), task.call(2)])
    await lender.write(note)
    assert note in place.notes()
    assert place.jobs() == []

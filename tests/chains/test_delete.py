"""`delete_many` where jobs wait for each other and are too many for one chunk."""

from __future__ import annotations

from uuid import UUID

import pytest

from windlass import Windlass
from windlass.acting import CHUNK

NEWEST = 2**128 - 1  # listed first


def waited_for(app: Windlass, count: int) -> None:
    """So many jobs, and for each of them one that waits for it and is listed long after it."""
    ids = [UUID(int=NEWEST - number) for number in range(count)]
    app.enqueue_many([app.call("blocker", id=id) for id in ids])
    app.enqueue_many([app.call("dependent", after=[id]) for id in ids])


@pytest.mark.parametrize("twin", ["sync", "async"])
async def test_a_refused_job_is_deleted_when_its_dependents_are_gone(app: Windlass, twin: str) -> None:
    waited_for(app, CHUNK + 100)
    assert (app.delete_many(all=True) if twin == "sync" else await app.adelete_many(all=True)) == 2 * (CHUNK + 100)
    assert app.counts().total == 0


def test_what_others_wait_for_stays_and_is_not_asked_for_ever(app: Windlass) -> None:
    waited_for(app, 3)
    assert app.delete_many(type="blocker") == 0
    app.enqueue("blocker")
    assert app.delete_many(type="blocker") == 1
    assert app.counts().total == 6

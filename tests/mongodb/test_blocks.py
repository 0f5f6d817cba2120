"""Blocks on MongoDB: what the handler does to its own transaction is the handler's fault, and said so."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from pymongo.errors import BulkWriteError

from windlass import Attempt, Windlass


@pytest.fixture
def app(fresh_mongodb_url: str) -> Iterator[Windlass]:
    app = Windlass(fresh_mongodb_url)
    app.migrate()
    yield app
    app.close()


def notes_of(session: Any) -> Any:
    return session.client.get_default_database()["notes"]


def run(app: Windlass, handler: Any) -> Any:
    job = app.task("block", max_attempts=1)(handler).enqueue()
    app.run_worker(until_idle=True)
    return job.refresh()


@pytest.mark.parametrize("begins", [False, True], ids=["", "and begun"])
@pytest.mark.parametrize("ends", ["commit_transaction", "abort_transaction"])
@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_a_transaction_that_was_ended_by_hand_does_not_complete_the_job(
    app: Windlass, is_async: bool, ends: str, begins: bool
) -> None:
    def sync_handler(attempt: Attempt) -> None:
        with attempt.transaction() as session:
            notes_of(session).insert_one({"_id": 1}, session=session)
            getattr(session, ends)()
            if begins:
                session.start_transaction()

    async def async_handler(attempt: Attempt) -> None:
        async with attempt.transaction() as session:
            await notes_of(session).insert_one({"_id": 1}, session=session)
            await getattr(session, ends)()
            if begins:
                await session.start_transaction()

    job = run(app, async_handler if is_async else sync_handler)
    assert (job.state, job.error.type) == ("failed", "Conflict")
    assert "was ended in it" in job.error.message


def test_an_error_that_the_handler_has_swallowed_spends_the_attempt(app: Windlass) -> None:
    starts = []

    def swallows(attempt: Attempt) -> None:
        starts.append(attempt.number)
        with attempt.transaction() as session:
            notes = notes_of(session)
            with suppress(BulkWriteError):
                notes.insert_many([{"_id": 1}, {"_id": 1}], session=session)

    job = run(app, swallows)
    assert job.state == "failed"
    assert len(starts) <= 10

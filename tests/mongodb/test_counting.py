"""Settlements without a transaction: what is cut short is found out, and the counts come right."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Event
from uuid import UUID, uuid4

import pytest

from tests.mongodb.support import Disturbed, claim, enqueue, get, new, raw, settle, settled
from windlass.job import NewJob
from windlass.operation import Begin, Interrupted, drive, transaction
from windlass.outcome import Settlement
from windlass.stores.mongodb import MongoStore
from windlass.stores.mongodb.tallies import FORGOTTEN
from windlass.stores.store import Refusal


def counted(store: MongoStore, state: str = "completed") -> int:
    return store.connections.run(store.counts)[state]


def announced(store: MongoStore) -> int:
    count: int = raw(store, "tallies").count_documents({"since": {"$exists": True}})
    return count


def upkeep_later(store: MongoStore) -> None:
    store.clock.move(FORGOTTEN + timedelta(seconds=1))
    store.connections.run(lambda: store.prune(10))


def held(store: MongoStore, *jobs: NewJob, token: UUID | None = None) -> UUID:
    """These, claimed."""
    token = token or uuid4()
    enqueue(store, *jobs)
    assert len(claim(store, len(jobs), token=token)) == len(jobs)
    return token


def settle_disturbed(store: MongoStore, connection: Disturbed, *settlements: Settlement) -> list[Refusal]:
    return drive(transaction(store.settle(settlements)), connection)


def test_no_transaction(store: MongoStore) -> None:
    jobs = [new() for _ in range(3)]
    token = held(store, *jobs)
    connection = Disturbed(store)
    outcomes = [settled(jobs[0].id, token), settled(jobs[1].id, token, "failed"), settled(jobs[2].id, token, "pending")]
    assert settle_disturbed(store, connection, *outcomes) == []
    assert not any(isinstance(step, Begin) for step in connection.steps)
    assert len(connection.steps) == 4
    assert (counted(store), counted(store, "failed"), counted(store, "pending")) == (1, 1, 1)
    assert announced(store) == 0


@pytest.mark.parametrize("written", [0, 1, 2])
def test_cut_short_and_sent_again(store: MongoStore, written: int) -> None:
    """Two groups, of which the server got to none, one or both before the connection broke."""
    jobs = [new() for _ in range(4)]
    first, second = held(store, *jobs[:2]), held(store, *jobs[2:])
    batch = [settled(job.id, token) for job, token in zip(jobs, (first, first, second, second), strict=True)]
    with pytest.raises(Interrupted):
        settle_disturbed(store, Disturbed(store, lost=True, only=written), *batch)
    assert [get(store, job.id).finished for job in jobs] == [written > 0] * 2 + [written > 1] * 2
    assert settle(store, *batch) == []
    assert all(get(store, job.id).state == "completed" for job in jobs)
    store.connections.run(lambda: store.prune(10))
    assert announced(store) == 1  # too young to be given up
    assert counted(store) == 4 - 2 * written
    upkeep_later(store)
    assert announced(store) == 0
    assert counted(store) == 4
    upkeep_later(store)
    assert counted(store) == 4


def test_died_before_it_could_confirm(store: MongoStore) -> None:
    job, for_ever, gone = new(), new(keep_seconds=-1), new(keep_seconds=0)
    token = held(store, job, for_ever, gone)
    batch = [settled(one.id, token) for one in (job, for_ever, gone)]
    with pytest.raises(Interrupted):
        settle_disturbed(store, Disturbed(store, lost=True), *batch)
    assert announced(store) == 2
    upkeep_later(store)
    assert counted(store) == 2
    store.connections.run(lambda: store.delete([job.id]))
    assert counted(store) == 1


def meanwhile_cancelled(store: MongoStore, id: UUID, token: UUID) -> None:
    store.connections.run(lambda: store.cancel([id]))


def meanwhile_rescued(store: MongoStore, id: UUID, token: UUID) -> None:
    raw(store, "jobs").update_one({"_id": id}, {"$set": {"leased_until": raw_past(store, id)}})
    assert len(store.connections.run(lambda: store.rescue(10))) == 1


def raw_past(store: MongoStore, id: UUID) -> object:
    return raw(store, "jobs").find_one({"_id": id})["claimed_at"] - timedelta(hours=1)


def meanwhile_settled(store: MongoStore, id: UUID, token: UUID) -> None:
    assert settle(store, settled(id, token)) == []


CASES: list[tuple[Callable[[MongoStore, UUID, UUID], None], str, str, list[str]]] = [
    (meanwhile_cancelled, "completed", "completed", []),
    (meanwhile_cancelled, "pending", "cancelled", []),
    (meanwhile_rescued, "completed", "pending", ["taken by another"]),
    (meanwhile_settled, "completed", "completed", []),
    (meanwhile_settled, "failed", "completed", ["already finished"]),
]


@pytest.mark.parametrize(("meanwhile", "wanted", "state", "refused"), CASES)
def test_changed_between_reading_and_writing(
    store: MongoStore,
    meanwhile: Callable[[MongoStore, UUID, UUID], None],
    wanted: str,
    state: str,
    refused: list[str],
) -> None:
    job, other = new(), new()
    token = held(store, job, other)
    connection = Disturbed(store, before=lambda: meanwhile(store, job.id, token))
    batch = [settled(job.id, token, wanted), settled(other.id, token)]  # type: ignore[arg-type]
    refusals = settle_disturbed(store, connection, *batch)
    assert [(refusal.id, refusal.reason) for refusal in refusals] == [(job.id, reason) for reason in refused]
    assert get(store, job.id).state == state
    assert get(store, other.id).state == "completed"
    assert counted(store) == 1 + (state == "completed")
    assert counted(store, "cancelled") == (state == "cancelled")
    assert counted(store, "failed") == 0
    assert announced(store) == 0


def bring_back(store: MongoStore, id: UUID) -> None:
    assert store.connections.run(lambda: store.retry([id]))[0].done


def delete(store: MongoStore, id: UUID) -> None:
    assert store.connections.run(lambda: store.delete([id]))[0].done


@pytest.mark.parametrize("take_away", [bring_back, delete])
def test_taken_away_before_the_batch_that_ended_it_looks_again(
    store: MongoStore, take_away: Callable[[MongoStore, UUID], None]
) -> None:
    job, taken_away, other = new(), new(), new()
    token = held(store, job, taken_away, other)
    connection = Disturbed(
        store, before=lambda: meanwhile_rescued(store, job.id, token), after=lambda: take_away(store, taken_away.id)
    )
    batch = [settled(job.id, token), settled(taken_away.id, token, "failed"), settled(other.id, token)]
    settle_disturbed(store, connection, *batch)
    assert (counted(store), counted(store, "failed")) == (1, 0)
    assert announced(store) == 0


@pytest.mark.parametrize("take_away", [bring_back, delete])
def test_taken_away_from_a_batch_that_was_never_confirmed(
    store: MongoStore, take_away: Callable[[MongoStore, UUID], None]
) -> None:
    taken_away, other, third = new(), new(), new()
    token = held(store, taken_away, other, third)
    batch = [settled(one.id, token, "failed") for one in (taken_away, other)] + [settled(third.id, token)]
    with pytest.raises(Interrupted):
        settle_disturbed(store, Disturbed(store, lost=True), *batch)
    take_away(store, taken_away.id)
    upkeep_later(store)
    assert (counted(store), counted(store, "failed")) == (1, 1)
    assert announced(store) == 0


def test_failed_jobs_of_no_rule_are_counted_for_as_long_as_they_are_kept(store: MongoStore) -> None:
    job = new(keep_seconds=None)
    token = held(store, job)
    assert settle(store, settled(job.id, token, "failed")) == []
    (stored,), (tally,) = raw(store, "jobs").find(), raw(store, "tallies").find()
    assert tally["purge_at"] >= stored["purge_at"]
    bring_back(store, job.id)
    assert [one["count"] for one in raw(store, "tallies").find().sort("count")] == [-1, 1]
    assert len({one["purge_at"] for one in raw(store, "tallies").find()}) == 1


def test_what_leaves_no_trace_is_fenced_too(store: MongoStore) -> None:
    taken, gone, other = (new(keep_seconds=0) for _ in range(3))
    token = held(store, taken, gone, other)
    batch = [settled(job.id, token) for job in (taken, gone, other)]
    connection = Disturbed(store, before=lambda: meanwhile_rescued(store, taken.id, token))
    refusals = settle_disturbed(store, connection, *batch)
    assert [(refusal.id, refusal.reason) for refusal in refusals] == [(taken.id, "taken by another")]
    assert [document["_id"] for document in raw(store, "jobs").find()] == [taken.id]
    assert store.connections.run(store.counts).total == 1


def test_many_settle_while_upkeep_folds(store: MongoStore) -> None:
    enqueue(store, *(new(type=f"t{number % 3}", keep_seconds=3600 + number % 2) for number in range(600)))
    over = Event()

    def work(_: int) -> int:
        count = 0
        while jobs := claim(store, 10, token=(token := uuid4())):
            assert settle(store, *(settled(job.id, token) for job in jobs)) == []
            count += len(jobs)
        return count

    def keep_up() -> None:
        while not over.is_set():
            store.connections.run(lambda: store.prune(10))

    with ThreadPoolExecutor(5) as pool:
        upkeep = pool.submit(keep_up)
        try:
            assert sum(pool.map(work, range(4))) == 600
        finally:
            over.set()
        upkeep.result()
    assert counted(store) == 600
    upkeep_later(store)
    assert counted(store) == 600
    assert announced(store) == 0


def test_each_says_its_own_however_many(store: MongoStore) -> None:
    """More than one update looks through; some say nothing."""
    jobs = [new() for _ in range(250)]
    token = held(store, *jobs)
    progress = [None if number % 7 == 0 else f'{{"text":"${number}"}}' for number in range(250)]
    batch = [
        settled(job.id, token, "completed" if number % 2 else "pending", progress=said, refund=number % 3 // 2)
        for number, (job, said) in enumerate(zip(jobs, progress, strict=True))
    ]
    assert settle(store, *batch) == []
    for number, job in enumerate(jobs):
        stored = get(store, job.id)
        assert stored.progress_json == progress[number]
        assert stored.state == ("completed" if number % 2 else "pending")
        if stored.state == "pending":
            assert stored.attempt == 1 - number % 3 // 2
    (document,) = raw(store, "jobs").find({"_id": jobs[0].id})
    assert "progress" not in document
    again = claim(store, 250, token=(token := uuid4()))
    assert settle(store, *(settled(job.id, token, "failed") for job in again)) == []
    assert all(get(store, job.id).progress_json == said for job, said in zip(jobs, progress, strict=True))
    store.connections.run(lambda: store.retry([again[3].id]))
    assert get(store, again[3].id).progress_json == again[3].progress_json

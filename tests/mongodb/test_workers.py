"""Workers: who is alive, what is held for them, when there is work."""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

from tests.mongodb.support import claim, enqueue, get, new, raw
from windlass.stores.mongodb import MongoStore
from windlass.stores.store import Lease, WorkerInfo


def worker(name: str, running: int = 0) -> WorkerInfo:
    return WorkerInfo(name=name, host="h", pid=7, queues=None, types=["t"], concurrency=4, running=running)


def beat(store: MongoStore, info: WorkerInfo) -> None:
    store.connections.run(lambda: store.beat(info, 60.0))


def test_workers_come_and_go(store: MongoStore) -> None:
    assert store.connections.run(store.workers) == []
    beat(store, worker("b"))
    store.clock.move(timedelta(seconds=10))
    beat(store, worker("a"))
    store.clock.move(timedelta(seconds=20))
    beat(store, worker("b", running=3))
    first, second = store.connections.run(store.workers)
    assert (first.name, first.running, second.name, second.queues) == ("b", 3, "a", None)
    assert first.started_at is not None
    assert first.heard_at is not None
    assert timedelta(seconds=30) <= first.heard_at - first.started_at < timedelta(seconds=40)
    assert second.heard_at == second.started_at
    store.clock.move(timedelta(seconds=45))
    beat(store, worker("b"))  # "a" was not heard of for 65 seconds
    assert [one.name for one in store.connections.run(store.workers)] == ["b"]
    store.connections.run(lambda: store.farewell("none"))
    store.connections.run(lambda: store.farewell("b"))
    assert store.connections.run(store.workers) == []


def test_one_that_was_forgotten_begins_anew(store: MongoStore) -> None:
    beat(store, worker("a"))
    (before,) = store.connections.run(store.workers)
    store.clock.move(timedelta(seconds=100))
    beat(store, worker("a"))
    (after,) = store.connections.run(store.workers)
    assert before.started_at is not None
    assert after.started_at is not None
    assert after.started_at > before.started_at


def test_jobs_that_were_claimed_with_a_token_are_held(store: MongoStore) -> None:
    enqueue(store, *(new() for _ in range(5)))
    mine, other = uuid4(), uuid4()
    held = claim(store, 3, token=mine)
    (left,) = claim(store, 1, token=other)
    store.clock.move(timedelta(seconds=50))
    assert store.connections.run(lambda: store.hold([mine, uuid4()])) == 3
    assert store.connections.run(lambda: store.hold([])) == 0
    store.clock.move(timedelta(seconds=30))
    rescued = store.connections.run(lambda: store.rescue(10))
    assert [settlement.id for settlement in rescued] == [left.id]
    for job in held:
        assert get(store, job.id).state == "running"
    stale = get(store, held[0].id).claimed_at
    assert stale is not None
    assert store.connections.run(lambda: store.rescue(10, stale_before=stale + timedelta(seconds=40))) == []


def test_when_the_next_is_due(store: MongoStore) -> None:
    def seconds(*queues: str) -> float | None:
        return store.connections.run(lambda: store.next_due(queues))

    assert seconds("q", "other") is None
    assert seconds() is None
    enqueue(store, new(delay_seconds=6000.0, rank=-5), new(delay_seconds=600.0), new(delay_seconds=3000.0, rank=3))
    enqueue(store, new(delay_seconds=100.0, queue="other"))
    assert 540 < (seconds("q") or 0) <= 600
    assert 40 < (seconds("q", "other") or 0) <= 100
    store.clock.move(timedelta(seconds=1000))
    assert -460 < (seconds("q") or 0) <= -400
    claim(store)
    assert 1940 < (seconds("q") or 0) <= 2000


def test_progress_is_kept_until_there_is_more(store: MongoStore) -> None:
    jobs, token = [new() for _ in range(3)], uuid4()
    enqueue(store, *jobs)
    claim(store, token=token)

    def renew(*progress: str | None) -> list[str | None]:
        leases = [Lease(job.id, token, 60.0, said) for job, said in zip(jobs, progress, strict=True)]
        assert all(renewal.expires_at for renewal in store.connections.run(lambda: store.renew(leases)))
        return [get(store, job.id).progress_json for job in jobs]

    assert renew('{"text":"$a"}', None, None) == ['{"text":"$a"}', None, None]
    assert renew(None, '{"fraction":0.5}', None) == ['{"text":"$a"}', '{"fraction":0.5}', None]
    assert get(store, jobs[1].id).notes.fraction == 0.5
    assert raw(store, "jobs").count_documents({"progress": {"$exists": True}}) == 2

"""One job for a key: in all forms, in a batch, and when many want it at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from tests.mongodb.support import claim, enqueue, finish, get, new, new_id, raw, settle, settled
from windlass.errors import Conflict
from windlass.job import NewJob
from windlass.stores.mongodb import MongoStore

KINDS: list[dict[str, Any]] = [
    {"unique_until": "claimed"},
    {"unique_until": "finished"},
    {"unique_until": "forever"},
    {"unique_until": "window", "window_seconds": 3600.0},
]


def unique(**options: Any) -> NewJob:
    return new(**{"unique_key": "k", "unique_until": "finished", **options})


@pytest.mark.parametrize("kind", KINDS)
def test_kept(store: MongoStore, kind: dict[str, Any]) -> None:
    first, second, third = unique(**kind), unique(**kind), unique(**kind)
    other_tenant, other_key = unique(tenant="acme", **kind), unique(**{**kind, "unique_key": "l"})
    answers = enqueue(store, first, second, other_tenant, other_key) + enqueue(store, third)
    expected = [(first.id, True), (first.id, False), (other_tenant.id, True), (other_key.id, True), (first.id, False)]
    assert [(answer.job.id, answer.created) for answer in answers] == expected
    assert raw(store, "jobs").count_documents({}) == 3


@pytest.mark.parametrize("kind", KINDS)
def test_how_long_a_key_is_held(store: MongoStore, kind: dict[str, Any]) -> None:
    def is_free() -> bool:
        (answer,) = enqueue(store, unique(queue="later", **kind))
        if answer.created:
            store.connections.run(lambda: store.delete([answer.job.id]))
        return answer.created

    until, job, token = kind["unique_until"], unique(**kind), uuid4()
    enqueue(store, job)
    assert not is_free()
    claim(store, token=token)
    assert is_free() == (until == "claimed")
    settle(store, settled(job.id, token, "pending"))  # a retry does not take a freed key back
    assert is_free() == (until == "claimed")
    claim(store, token=token)
    settle(store, settled(job.id, token))
    assert is_free() == (until in ("claimed", "finished"))
    if until == "window":
        store.clock.move(timedelta(hours=2))
        assert is_free()
    elif until == "forever":
        store.connections.run(lambda: store.delete([job.id]))
        assert is_free()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("batch", [False, True])
def test_raise_leaves_nothing_behind(store: MongoStore, kind: dict[str, Any], batch: bool) -> None:
    enqueue(store, unique(**kind))
    jobs = [new(), unique(on_conflict="raise", **kind)] if batch else [unique(on_conflict="raise", **kind)]
    with pytest.raises(Conflict):
        enqueue(store, *jobs)
    assert raw(store, "jobs").count_documents({}) == 1
    with pytest.raises(Conflict):
        enqueue(store, new(unique_key="x", **kind), new(unique_key="x", on_conflict="raise", **kind))
    assert raw(store, "jobs").count_documents({}) == 1


@pytest.mark.parametrize("batch", [False, True])
def test_replace_renews_what_waits(store: MongoStore, batch: bool) -> None:
    options: dict[str, Any] = {"unique_until": "claimed", "on_conflict": "replace"}
    first = unique(input='{"n":1}', labels='{"a":"b"}', expires_seconds=60.0, **options)
    second = unique(input='{"n":2}', delay_seconds=60.0, rank=-5, **options)
    (one,) = enqueue(store, first)
    answers = enqueue(store, new(), second) if batch else enqueue(store, second)
    assert (answers[-1].job.id, answers[-1].created) == (first.id, False)
    for job in (answers[-1].job, get(store, first.id)):
        assert (job.input_json, job.priority, job.labels, job.expires_at) == ('{"n":2}', 5, {}, None)
        assert job.run_at - one.job.run_at > timedelta(seconds=55)


def test_replace_in_one_batch(store: MongoStore) -> None:
    jobs = [unique(unique_until="claimed", on_conflict="replace", input=f'{{"n":{n}}}') for n in range(3)]
    answers = enqueue(store, *jobs)
    assert [answer.created for answer in answers] == [True, False, False]
    assert {answer.job.input_json for answer in answers} == {'{"n":2}'}
    assert get(store, jobs[0].id).input_json == '{"n":2}'


def test_what_runs_is_not_rewritten(store: MongoStore) -> None:
    first = unique(input='{"n":1}')
    enqueue(store, first)
    claim(store)
    (answer,) = enqueue(store, unique(on_conflict="replace", input='{"n":2}'))
    assert (answer.job.id, answer.created) == (first.id, False)
    assert get(store, first.id).input_json == '{"n":1}'


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [1, 3])
def test_many_want_one_key_at_once(store: MongoStore, kind: dict[str, Any], size: int) -> None:
    """In single calls and in batches with other jobs, which take the keys in different orders."""
    keys = [f"k{number}" for number in range(size)]

    def want(worker: int) -> list[Any]:
        order = keys if worker % 2 else keys[::-1]
        return [answer.job.id for answer in enqueue(store, *(unique(unique_key=key, **kind) for key in order))]

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(want, range(24)))
    assert raw(store, "jobs").count_documents({}) == size
    assert len({frozenset(answer) for answer in answers}) == 1


def test_a_key_outlives_its_job(store: MongoStore) -> None:
    id = finish(store, unique_key="k", unique_until="forever", keep_seconds=0)
    (answer,) = enqueue(store, unique(unique_until="forever"))
    assert (answer.job.id, answer.created, answer.job.finished) == (id, False, True)


def test_ids_sent_again(store: MongoStore) -> None:
    given = new(id_given=True)
    assert [answer.created for answer in enqueue(store, given, given)] == [True, False]
    assert [answer.created for answer in enqueue(store, given)] == [False]
    ours = [new(), new()]
    enqueue(store, *ours)
    answers = enqueue(store, *ours, new(), resent=True)
    assert [answer.created for answer in answers] == [False, False, True]
    (job, *_) = claim(store, token=(token := uuid4()))
    settle(store, settled(job.id, token))
    (answer,) = enqueue(store, new(id=job.id, id_given=True))
    assert (answer.created, answer.job.state) == (False, "completed")


def test_an_id_sent_again_by_many_at_once(store: MongoStore) -> None:
    id = new_id()
    with ThreadPoolExecutor(8) as pool:
        sent = pool.map(
            lambda _: enqueue(store, new(id=id, id_given=True, unique_key="k", unique_until="finished")), range(16)
        )
        assert sum(answer.created for (answer,) in sent) == 1


def test_brought_back_only_where_its_key_is_free(store: MongoStore) -> None:
    failed = finish(store, "failed", unique_key="k", unique_until="finished")
    (holder,) = enqueue(store, unique())
    (change,) = store.connections.run(lambda: store.retry([failed]))
    assert (change.done, change.state) == (False, "failed")
    store.connections.run(lambda: store.delete([holder.job.id]))
    (change,) = store.connections.run(lambda: store.retry([failed]))
    assert (change.done, change.state) == (True, "pending")
    (answer,) = enqueue(store, unique())
    assert (answer.job.id, answer.created) == (failed, False)


def test_of_two_that_would_hold_one_key_again_one_comes_back(store: MongoStore) -> None:
    ids = [finish(store, "failed", unique_key="k", unique_until="finished") for _ in range(2)]
    changes = store.connections.run(lambda: store.retry(ids))
    assert sorted(change.done for change in changes) == [False, True]

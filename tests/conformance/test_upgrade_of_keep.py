"""A database of schema 2, in which 604800 seconds say that no keep= was given, brought up to date."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conformance.stores import closing
from windlass.conformance.bench import Bench, Held, new_job
from windlass.job import Job
from windlass.operation import Operation, Request, Statement
from windlass.schedule import NO_ID, Schedule, call_json
from windlass.stores.opening import open_store
from windlass.stores.sql.store import SqlStore
from windlass.stores.store import Store

DEFAULT = 604_800


@pytest.fixture
def bench(store_url: str) -> Iterator[Bench]:
    with closing(open_store(store_url)) as store:
        store.connections.run(store.migrate)
        store.connections.run(lambda: forget_schema_3(store))
        assert not store.connections.run(store.check_schema)
        yield Bench(store)


def forget_schema_3(store: Store) -> Operation[None]:
    """Schema 2 has the same tables and indexes."""
    if isinstance(store, SqlStore):
        yield Statement(store.sql.render("a test's own", "DELETE FROM {migrations} WHERE version = 3"))
    else:
        yield Request("windlass_migrations", "delete_one", ({"_id": 3},), alone=True)


def upgrade(bench: Bench) -> None:
    (name,) = bench.run(bench.store.migrate)
    assert name.startswith("0003")
    assert bench.run(bench.store.check_schema)
    assert bench.run(bench.store.migrate) == []


def keep_of(job: Job | Held, bench: Bench) -> int | None:
    policy = bench.look(job).policy
    assert policy is not None
    return policy.keep_seconds


def test_jobs_without_keep_are_kept_by_the_default(bench: Bench) -> None:
    held, failed = bench.hold(keep_seconds=DEFAULT), bench.finish("failed", keep_seconds=DEFAULT)
    waiting = bench.add(keep_seconds=DEFAULT)
    upgrade(bench)
    assert [keep_of(job, bench) for job in (waiting, held, failed)] == [None] * 3
    bench.accept(held.ends("failed"))
    bench.pass_time(days=9)
    assert bench.prune() == 1  # `failed`, which ended with a purge time of its own
    assert bench.look(held).state == "failed"
    assert bench.counts().failed == 1


def test_a_keep_that_was_given_stays(bench: Bench) -> None:
    given = [bench.add(keep_seconds=seconds) for seconds in (-1, 3600, DEFAULT + 1)]
    upgrade(bench)
    assert [keep_of(job, bench) for job in given] == [-1, 3600, DEFAULT + 1]


def test_finished_jobs_are_counted_and_can_be_retried(bench: Bench) -> None:
    failed, cancelled = (bench.finish(state, keep_seconds=DEFAULT) for state in ("failed", "cancelled"))
    bench.finish(keep_seconds=DEFAULT)
    upgrade(bench)
    bench.retry(failed)
    assert keep_of(failed, bench) is None
    assert keep_of(cancelled, bench) is None
    counts = bench.counts()
    assert (counts.completed, counts.failed, counts.cancelled, counts.pending) == (1, 0, 1, 1)
    bench.accept(bench.claim_one(queue=failed.queue).completes())
    bench.pass_time(days=9)
    assert bench.prune() == 3
    assert bench.counts().total == 0


@pytest.mark.parametrize(("stored", "read"), [(DEFAULT, None), (DEFAULT * 10, DEFAULT * 10), (None, None)])
def test_schedules_without_keep_make_jobs_without_it(bench: Bench, stored: int | None, read: int | None) -> None:
    job = new_job(id=NO_ID, keep_seconds=stored, input='{"text":"\\"keep_seconds\\":604800,"}')
    now = bench.run(bench.store.now)
    written = Schedule(
        name="nightly", cron="@daily", timezone="UTC", catch_up="all", call=call_json(job), declared="", next_at=now
    )
    bench.run(lambda: bench.store.put_schedules([written]))
    upgrade(bench)
    (found,) = bench.run(bench.store.schedules).schedules
    assert (found.job.keep_seconds, found.job.input) == (read, job.input)


def test_older_code_may_still_write_the_old_default(bench: Bench) -> None:
    upgrade(bench)
    job = bench.finish("failed", keep_seconds=DEFAULT)
    bench.pass_time(days=9)
    assert bench.prune() == 1
    assert bench.get(job.id) == []
    assert bench.counts().total == 0

"""`app.list(unique=…)` reads the index of keys, however many jobs hold keys of their own or have ended."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from tests.mongodb.support import explain, first_request, indexes_used
from windlass import InvalidInput, Unique, Windlass
from windlass.operation import Statement
from windlass.stores.sql.values import bound
from windlass.stores.store import Filter

JOBS = 1000


@pytest.fixture
def app(store_url: str) -> Iterator[Windlass]:
    """Much of everything: keys that live jobs hold, keys that are kept, jobs without any, finished ones."""
    app = Windlass(store_url)
    for until in ("finished", "forever"):
        app.enqueue_many(app.call("t", {}, unique=Unique(f"{until} {n}", until=until)) for n in range(JOBS))
    app.enqueue_many(app.call("t", {}, queue="to be finished") for _ in range(JOBS))
    assert app.cancel_many(queue="to be finished") == JOBS
    yield app
    app.close()


@pytest.mark.parametrize("key", ["finished 7", "forever 7", "no such"])
def test_a_key_is_found_through_its_index(app: Windlass, key: str) -> None:
    found = [job.unique_key for job in app.list(unique=key)]
    assert found == ([] if key == "no such" else [key])
    store: Any = app.store
    looked_at = {"postgresql": postgres, "sqlite": sqlite, "mongodb": mongodb}[app.url.partition(":")[0]]
    looked_at(store, Filter(unique=key, tenant=""), app.url)


def postgres(store: Any, filter: Filter, url: str) -> None:
    """Generic and custom, with statistics and without: few pages are read, none of them by a scan of a table."""
    step = next(store.list(filter, 101))
    assert isinstance(step, Statement)
    text, names = step.query.numbered[-1]
    with psycopg.connect(**store.connections.settings(), autocommit=True, prepare_threshold=None) as connection:
        values = ", ".join(psycopg.ClientCursor(connection).mogrify("%s", [step.parameters[name]]) for name in names)
        for statistics in ("SELECT", "ANALYZE windlass_jobs, windlass_keys, windlass_history"):
            connection.execute(statistics)
            for mode in ("custom", "generic"):
                connection.execute(f"SET plan_cache_mode = force_{mode}_plan; PREPARE looked_at AS {text}")
                explained = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT json) EXECUTE looked_at({values})"
                row = connection.execute(explained).fetchone()
                connection.execute("DEALLOCATE looked_at")
                assert row is not None
                plan = row[0][0]["Plan"]
                assert plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] < 200, row
                assert "windlass_jobs_unique" in str(plan)
                assert "windlass_keys_pkey" in str(plan)
                assert "Seq Scan" not in str(plan)


def sqlite(store: Any, filter: Filter, url: str) -> None:
    ((text, values),) = bound(next(store.list(filter, 101)))
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as file:
        for statistics in ("SELECT 1", "ANALYZE"):
            file.execute(statistics)
            plan = [row[3] for row in file.execute(f"EXPLAIN QUERY PLAN {text}", values)]
            assert any("SEARCH h USING INDEX windlass_jobs_unique (tenant=? AND unique_key=?" in line for line in plan)
            assert any("SEARCH k USING PRIMARY KEY (tenant=? AND key=?" in line for line in plan)
            assert not [line for line in plan if line.startswith("SCAN") and "page" not in line], plan


def mongodb(store: Any, filter: Filter, url: str) -> None:
    records = first_request(store.list(filter, 101))
    stats = explain(store, records)
    assert indexes_used(stats) == {"_id_"}
    assert stats["totalDocsExamined"] <= 1
    for kept in ([], [{"job_id": uuid4()}]):
        stats = explain(store, first_request(store.list(filter, 101), [kept]))
        assert "held_keys_by_scope" in indexes_used(stats)
        assert indexes_used(stats) <= {"held_keys_by_scope", "_id_"}
        assert stats["totalDocsExamined"] <= 2
        assert stats["totalKeysExamined"] <= 4


def test_a_key_that_is_none_is_refused(app: Windlass) -> None:
    for wrong in ("", 7, "nul \0"):
        with pytest.raises(InvalidInput, match="unique"):
            app.list(unique=wrong)  # type: ignore[arg-type]


async def test_acting_by_key(app: Windlass) -> None:
    assert await app.acancel_many(unique="finished 7") == 1
    assert await app.arun_now_many(unique="no such") == 0
    assert len(await app.alist(unique="finished 7")) == 0

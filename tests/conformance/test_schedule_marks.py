"""A job that a schedule has made says so in its row, live and finished, for those who look there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.conformance.stores import closing
from windlass.conformance.bench import Bench
from windlass.conformance.schedules import fire_due, pass_ticks, put
from windlass.operation import Operation, Request, Statement
from windlass.stores.opening import open_store
from windlass.stores.sql.store import SqlStore
from windlass.stores.store import Store


@pytest.fixture
def store(store_url: str) -> Iterator[Store]:
    with closing(open_store(store_url)) as store:
        store.connections.run(store.migrate)
        yield store


def marks(store: Store) -> Operation[list[Any]]:
    if isinstance(store, SqlStore):
        text = "SELECT schedule FROM {jobs} UNION ALL SELECT schedule FROM {history}"
        rows = yield Statement(store.sql.made(("marks",), lambda: text))
        return [row[0] for row in rows]
    rows = yield Request("windlass_jobs", "find", ({},))
    return [row.get("schedule") for row in rows]


def test_the_name_of_the_schedule_stays_with_the_job(store: Store) -> None:
    bench = Bench(store)
    put(bench)
    pass_ticks(bench)
    fire_due(bench)
    assert bench.run(lambda: marks(store)) == ["nightly"]
    bench.accept(bench.claim_one().completes())
    bench.add()
    assert sorted(bench.run(lambda: marks(store)), key=str) == [None, "nightly"]

"""Claim, rescue and list go through their indexes beside many finished jobs."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import pytest

from windlass.operation import Statement
from windlass.outcome import Settlement
from windlass.stores.sql.values import bound
from windlass.stores.sqlite.store import SqliteStore
from windlass.stores.store import Bookmark, ClaimRequest, Filter

HISTORY_ROWS = 100_000  # without ANALYZE, SQLite chooses the same plan for any number

FILL_HISTORY = """
INSERT INTO windlass_history (id, run_at, created_at, finished_at, purge_at, state, attempt, rank, chain_index,
    chain_id, queue, type, tenant, input)
WITH RECURSIVE numbers (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM numbers WHERE i < ?)
SELECT printf('%08x-0000-7000-8000-000000000000', i), i, i, i, i, iif(i % 1000 = 0, 'failed', 'completed'), 1, 0, 0,
    printf('%08x-0000-7000-8000-000000000000', i), 'q', 't' || (i % 50), iif(i % 100 = 0, 'acme', ''), '{}'
FROM numbers
"""


class Scene:
    def __init__(self, path: Path) -> None:
        self.store = SqliteStore(str(path))
        self.store.connections.run(self.store.migrate)
        self.connection = sqlite3.connect(path)
        self.connection.execute("PRAGMA synchronous = OFF")
        self.connection.execute(FILL_HISTORY, [HISTORY_ROWS])
        self.connection.commit()

    def plan(self, step: object, number: int = 0) -> list[str]:
        """What SQLite says of the statement: SEARCH … USING INDEX, or SCAN."""
        assert isinstance(step, Statement)
        text, values = list(bound(step))[number]
        rows = self.connection.execute(f"EXPLAIN QUERY PLAN {text}", values)
        return [row[3] for row in rows]


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    scene = Scene(tmp_path_factory.mktemp("plans") / "jobs.db")
    yield scene
    scene.connection.close()
    scene.store.connections.close()


def whole_scans(plan: list[str]) -> list[str]:
    """Tables of ours that are read from end to end, and not in the order of an index."""
    return [line for line in plan if line.startswith("SCAN windlass_") and "USING" not in line]


@pytest.mark.parametrize("types", [None, ["t1", "t2"]], ids=["any type", "typed"])
def test_claim_searches_the_ready_index(scene: Scene, types: list[str] | None) -> None:
    request = ClaimRequest(queue="q", limit=100, token=uuid4(), worker="w", types=types)
    plan = scene.plan(next(scene.store.claim(request)))
    assert any("USING INDEX windlass_jobs_ready (queue=?" in line for line in plan)
    assert not whole_scans(plan)
    assert not any("TEMP B-TREE FOR ORDER BY" in line for line in plan[:6])


def test_rescue_searches_the_index_of_running_jobs(scene: Scene) -> None:
    plan = scene.plan(next(scene.store.rescue(100)))
    assert len(plan) == 1
    assert plan[0].endswith("USING INDEX windlass_jobs_running")


def test_expiry_searches_its_index_in_its_order(scene: Scene) -> None:
    plan = scene.plan(next(scene.store.expire(100)))
    assert len(plan) == 1, "it is sorted afterwards"
    assert "USING INDEX windlass_jobs_expiry (expires_at<?)" in plan[0]


@pytest.mark.parametrize("number", [0, 1], ids=["history", "delete"])
def test_settle_goes_through_the_primary_key(scene: Scene, number: int) -> None:
    settlement = Settlement(id=uuid4(), token=uuid4(), state="completed", output="null")
    plan = scene.plan(next(scene.store.settle([settlement])), number)
    assert any("INDEX sqlite_autoindex_windlass_jobs_1 (id=?)" in line for line in plan)
    assert not whole_scans(plan)


@pytest.mark.parametrize(
    ("filter", "index"),
    [
        (Filter(), "sqlite_autoindex_windlass_history_1"),
        (Filter(state="completed"), "sqlite_autoindex_windlass_history_1"),
        (Filter(state="failed"), "windlass_history_state"),
        (Filter(type="t7"), "windlass_history_type"),
        (Filter(tenant="acme"), "windlass_history_tenant"),
        (Filter(chain=uuid4()), "windlass_history_chain"),
    ],
    ids=["all", "completed", "failed", "type", "tenant", "chain"],
)
def test_list_pages_through_an_index(scene: Scene, filter: Filter, index: str) -> None:
    for before in (None, Bookmark(uuid4(), datetime.now(UTC))):
        plan = scene.plan(next(scene.store.list(filter, 100, before)))
        assert any(index in line for line in plan), plan
        assert not whole_scans(plan)


@pytest.mark.parametrize(
    ("filter", "index"),
    [
        (Filter(), "sqlite_autoindex_windlass_history_1"),
        (Filter(state="completed"), "sqlite_autoindex_windlass_history_1"),
        (Filter(state="failed"), "windlass_history_ends"),
        (Filter(state="failed", type="t7"), "windlass_history_ends"),
        (Filter(type="t7"), "windlass_history_type"),
        (Filter(tenant="acme"), "windlass_history_tenant"),
        (Filter(state="running"), "windlass_jobs"),
    ],
    ids=["all", "completed", "failed", "failed of a type", "type", "tenant", "running"],
)
def test_chains_page_through_an_index(scene: Scene, filter: Filter, index: str) -> None:
    for before in (None, uuid4()):
        plan = scene.plan(next(scene.store.chains(filter, 100, before)))
        assert any(index in line for line in plan), plan
        assert not whole_scans(plan)
        assert not any("SCAN r" in line and "USING" not in line for line in plan), plan
        assert not any("SCAN o" in line for line in plan), plan


def test_dependents_use_their_index(scene: Scene) -> None:
    plan = scene.plan(next(scene.store.dependents(uuid4(), 100)))
    assert any("windlass_edges_chain (chain_id=?" in line for line in plan), plan
    assert not any(line.startswith("SCAN j") for line in plan), plan

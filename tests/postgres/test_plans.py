"""The plans of the hot queries hold whatever the planner's statistics saw last, and however much lies beside.

Statistics are taken when the table was empty, all pending, or all running, and then the table is something else: that
is how a busy queue meets its planner. Custom plans see the parameters, generic ones do not; both are looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from windlass.job import Job
from windlass.operation import Operation, Statement
from windlass.outcome import Settlement
from windlass.stores.postgres.store import PostgresStore
from windlass.stores.store import Bookmark, ClaimRequest, Filter, Lease

LIVE_ROWS = 100_000
HISTORY_ROWS = 1_000_000

FILL_LIVE = """
INSERT INTO windlass_jobs (id, run_at, created_at, state, attempt, chain_id, queue, type, input, max_attempts,
    lease_seconds, keep_seconds, policy, token, worker, claimed_at, leased_until)
SELECT id, now() - interval '1 hour', now(), %(state)s::windlass_state, 0, id, 'q' || i %% 3, 't' || i %% 5, '{}',
    20, 60, NULL, '{}', CASE WHEN %(state)s = 'running' THEN gen_random_uuid() END, 'w', now(),
    now() + interval '60 s'
FROM (SELECT i, lpad(to_hex(%(first)s + i), 32, '0')::uuid AS id FROM generate_series(1, %(rows)s) AS i) AS made
"""

FILL_HISTORY = """
INSERT INTO windlass_history (id, run_at, created_at, finished_at, purge_at, state, attempt, slot, rank, chain_index,
    chain_id, queue, type, tenant, input, output, max_attempts, keep_seconds, token)
SELECT id, now(), now(), now(), now() + interval '7 days',
    CASE WHEN i %% 1000 = 0 THEN 'failed' ELSE 'completed' END::windlass_state, 1, i %% 8, 0, 0, id, 'q' || i %% 3,
    't' || i %% 50, CASE WHEN i %% 100 = 0 THEN 'acme' ELSE '' END, '{}', 'null', 20, NULL, gen_random_uuid()
FROM (SELECT i, lpad(to_hex(%(first)s + i), 32, '0')::uuid AS id FROM generate_series(1, %(rows)s) AS i) AS made
"""


def _walk(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for child in node.get("Plans", ()):
        yield from _walk(child)


def scans(nodes: list[dict[str, Any]]) -> set[tuple[str, str]]:
    """(how, through which index or on which table) each table of ours is read."""
    return {
        (node["Node Type"], node.get("Index Name") or node["Relation Name"])
        for node in nodes
        if "Scan" in node["Node Type"] and (node.get("Index Name") or node.get("Relation Name"))
    }


def seq_scans(nodes: list[dict[str, Any]]) -> set[str]:
    names = {name for kind, name in scans(nodes) if kind == "Seq Scan"}
    return {name for name in names if name.startswith(("windlass_jobs", "windlass_history"))}


class Scene:
    """A schema of its own in one state, and a connection with the settings of ours to ask for plans on."""

    def __init__(self, url: str) -> None:
        # A name of its own: two test processes of one server may set up the same scene.
        schema = f"plans_{uuid4().hex}"
        self.store = PostgresStore(url, schema=schema)
        self.connection = psycopg.connect(**self.store.connections.settings(), autocommit=True, prepare_threshold=None)
        self.store.connections.run(self.store.migrate)
        self.execute(f"SET search_path = {schema}; SET synchronous_commit = off")
        # What autovacuum does in its own time would make the statistics fresh again.
        self.execute("ALTER TABLE windlass_jobs SET (autovacuum_enabled = off)")

    def execute(self, text: str, **parameters: Any) -> None:
        self.connection.execute(text, parameters or None)

    def fill(self, text: str, rows: int, *, first: int = 0, state: str = "pending") -> None:
        self.execute(text, rows=rows, first=first, state=state)

    def nodes(self, statement: object, mode: str) -> list[dict[str, Any]]:
        """All nodes of the plan, generic or custom."""
        assert isinstance(statement, Statement)
        text, names = statement.query.numbered[-1]
        self.execute(f"DEALLOCATE ALL; SET plan_cache_mode = force_{mode}_plan")
        self.execute(f"PREPARE looked_at AS {text}")
        cursor = psycopg.ClientCursor(self.connection)
        values = ", ".join(cursor.mogrify("%s", [statement.parameters[name]]) for name in names)
        row = self.connection.execute(f"EXPLAIN (FORMAT json) EXECUTE looked_at({values})").fetchone()
        assert row is not None
        return list(_walk(row[0][0]["Plan"]))

    def close(self) -> None:
        self.execute(f"DROP SCHEMA {self.store.schema} CASCADE")
        self.connection.close()
        self.store.connections.close()


@pytest.fixture(scope="module", params=["empty", "all pending", "all running"])
def stale(request: pytest.FixtureRequest, postgres_url: str) -> Iterator[Scene]:
    """Statistics of one moment, the rows of another."""
    scene = Scene(postgres_url)
    if request.param != "empty":
        scene.fill(FILL_LIVE, LIVE_ROWS, state=request.param.split()[1])
    scene.execute("VACUUM ANALYZE windlass_jobs")
    scene.execute("DELETE FROM windlass_jobs")
    scene.fill(FILL_LIVE, LIVE_ROWS, state="running" if request.param == "all pending" else "pending")
    yield scene
    scene.close()


@pytest.fixture(scope="module")
def long_history(postgres_url: str) -> Iterator[Scene]:
    """A million finished jobs beside the live ones."""
    scene = Scene(postgres_url)
    scene.fill(FILL_HISTORY, HISTORY_ROWS)
    scene.fill(FILL_LIVE, 10_000)
    scene.fill(FILL_LIVE, 1_000, first=10_000, state="running")
    scene.execute("ANALYZE windlass_jobs, windlass_history")
    yield scene
    scene.close()


def claim(store: PostgresStore, *, typed: bool) -> Operation[list[Job]]:
    types = ["t1", "t2"] if typed else None
    return store.claim(ClaimRequest(queue="q1", limit=500, token=uuid4(), worker="w", types=types))


@pytest.mark.parametrize("mode", ["custom", "generic"])
@pytest.mark.parametrize("typed", [True, False], ids=["typed", "any type"])
def test_claim_reads_the_ready_index_and_writes_by_place(stale: Scene, mode: str, typed: bool) -> None:
    nodes = stale.nodes(next(claim(stale.store, typed=typed)), mode)
    assert {("Index Scan", "windlass_jobs_ready"), ("Tid Scan", "windlass_jobs")} <= scans(nodes)
    assert not seq_scans(nodes)
    ready = next(node for node in nodes if node.get("Index Name") == "windlass_jobs_ready")
    assert "queue" in ready["Index Cond"]
    assert "ROW(rank, run_at, id) >" in ready["Index Cond"]


@pytest.mark.parametrize("mode", ["custom", "generic"])
def test_to_look_past_last_attempts_reads_the_ready_index_in_its_order(stale: Scene, mode: str) -> None:
    operation = stale.store.claim(ClaimRequest(queue="q1", limit=500, token=uuid4(), worker="w", prefetch=True))
    next(operation)
    nodes = stale.nodes(operation.send([]), mode)
    assert scans(nodes) == {("Index Scan", "windlass_jobs_ready")}
    assert "Sort" not in {node["Node Type"] for node in nodes}


@pytest.mark.parametrize("mode", ["custom", "generic"])
def test_expiry_reads_its_index_in_its_order(stale: Scene, mode: str) -> None:
    nodes = stale.nodes(next(stale.store.expire(100)), mode)
    assert {name for _, name in scans(nodes)} == {"windlass_jobs_expiry"}
    assert "Sort" not in {node["Node Type"] for node in nodes}


@pytest.mark.parametrize("mode", ["custom", "generic"])
@pytest.mark.parametrize("seqscan", ["on", "off"])
@pytest.mark.parametrize("state", ["completed", "failed"])
def test_settle_goes_through_the_primary_key(stale: Scene, mode: str, seqscan: str, state: Any) -> None:
    settlements = [Settlement(id=uuid4(), token=uuid4(), state=state, output="null") for _ in range(500)]
    stale.execute(f"SET enable_seqscan = {seqscan}")  # on: as behind a pooler that takes no options
    nodes = stale.nodes(next(stale.store.settle(settlements)), mode)
    stale.execute("SET enable_seqscan = off")
    assert ("Index Scan", "windlass_jobs_pkey") in scans(nodes)
    assert not seq_scans(nodes)
    assert ("Index Scan", "windlass_jobs_running") not in scans(nodes)


@pytest.mark.parametrize("mode", ["custom", "generic"])
def test_send_back_and_renew_go_through_the_primary_key(stale: Scene, mode: str) -> None:
    back = [Settlement(id=uuid4(), token=uuid4(), state="pending", delay_seconds=1.0) for _ in range(100)]
    leases = [Lease(uuid4(), uuid4(), 60.0) for _ in range(100)]
    for step in (next(stale.store.settle(back)), next(stale.store.renew(leases))):
        nodes = stale.nodes(step, mode)
        assert ("Index Scan", "windlass_jobs_pkey") in scans(nodes)
        assert not seq_scans(nodes)


def test_a_plan_that_is_kept_from_an_empty_queue_still_serves_a_full_one(postgres_url: str) -> None:
    scene = Scene(postgres_url)
    try:
        scene.execute("VACUUM ANALYZE windlass_jobs")
        for operation in (claim(scene.store, typed=True), scene.store.renew([Lease(uuid4(), uuid4(), 1.0)])):
            assert not seq_scans(scene.nodes(next(operation), "generic"))
    finally:
        scene.close()


@pytest.mark.parametrize("mode", ["custom", "generic"])
@pytest.mark.parametrize(
    ("filter", "index"),
    [
        (Filter(), "pkey"),
        (Filter(state="completed"), "pkey"),
        (Filter(state="failed"), "state_finished_at_id_idx"),
        (Filter(type="t7"), "type_id_idx"),
        (Filter(tenant="acme"), "tenant_id_idx"),
        (Filter(chain=uuid4()), "chain_id_chain_index_idx"),
    ],
    ids=["all", "completed", "failed", "type", "tenant", "chain"],
)
def test_list_pages_through_an_index_beside_a_million(
    long_history: Scene, mode: str, filter: Filter, index: str
) -> None:
    for before in (None, Bookmark(uuid4(), datetime.now(UTC))):
        nodes = long_history.nodes(next(long_history.store.list(filter, 100, before)), mode)
        assert not {name for name in seq_scans(nodes) if "history" in name}
        assert any(name.startswith("windlass_history") and name.endswith(index) for _, name in scans(nodes))


@pytest.mark.parametrize("mode", ["custom", "generic"])
def test_claim_rescue_and_get_use_their_indexes_beside_a_million(long_history: Scene, mode: str) -> None:
    store = long_history.store
    assert ("Index Scan", "windlass_jobs_ready") in scans(long_history.nodes(next(claim(store, typed=True)), mode))
    assert {name for _, name in scans(long_history.nodes(next(store.rescue(100)), mode))} == {"windlass_jobs_running"}
    assert not seq_scans(long_history.nodes(next(store.get([uuid4() for _ in range(10)])), mode))


@pytest.mark.parametrize("mode", ["custom", "generic"])
@pytest.mark.parametrize(
    ("filter", "index"),
    [
        (Filter(), "pkey"),
        (Filter(state="completed"), "pkey"),
        (Filter(state="failed"), "state_chain_id_idx"),
        (Filter(state="failed", type="t7"), "state_chain_id_idx"),
        (Filter(type="t7"), "type_id_idx"),
        (Filter(tenant="acme"), "tenant_id_idx"),
    ],
    ids=["all", "completed", "failed", "failed of a type", "type", "tenant"],
)
def test_chains_page_through_an_index_beside_a_million(
    long_history: Scene, mode: str, filter: Filter, index: str
) -> None:
    for before in (None, uuid4()):
        nodes = long_history.nodes(next(long_history.store.chains(filter, 100, before)), mode)
        assert not {name for name in seq_scans(nodes) if "history" in name}
        assert any(name.startswith("windlass_history") and name.endswith(index) for _, name in scans(nodes))
    assert not any(node["Node Type"] == "Sort" and node["Plan Rows"] > 10_000 for node in nodes)


@pytest.mark.parametrize("mode", ["custom", "generic"])
@pytest.mark.parametrize("state", ["blocked", "pending", "running"])
def test_live_chains_do_not_read_history_beside_a_million(long_history: Scene, mode: str, state: Any) -> None:
    nodes = long_history.nodes(next(long_history.store.chains(Filter(state=state, type="t7"), 100)), mode)
    assert not {name for name in seq_scans(nodes) if "history" in name}
    long_history.connection.execute("SET statement_timeout = '20s'")
    assert long_history.store.connections.run(lambda: long_history.store.chains(Filter(state=state), 10)) is not None


@pytest.mark.parametrize("mode", ["custom", "generic"])
def test_dependents_use_their_index_beside_a_million(long_history: Scene, mode: str) -> None:
    nodes = long_history.nodes(next(long_history.store.dependents(uuid4(), 100)), mode)
    assert not {name for name in seq_scans(nodes) if "history" in name}
    assert any(name == "windlass_edges_chain" for _, name in scans(nodes))

"""How PostgreSQL finds what is due, and what is stale."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import psycopg

from examples.memory_extraction.extraction import QUEUE
from examples.memory_extraction.extractors import Transaction
from tests.postgres.test_plans import _walk, scans, seq_scans
from windlass import Unique
from windlass.operation import Statement
from windlass.stores.store import ClaimRequest

from .conftest import TEA, opened

JOBS, RUNNING = 5000, 200
PREDICATES = "SELECT indexname, indexdef FROM pg_indexes WHERE tablename = 'windlass_jobs'"


def plan(connection: psycopg.Connection[Any], statement: object) -> list[dict[str, Any]]:
    """Of the very statement that Windlass sends, with its parameters."""
    assert isinstance(statement, Statement)
    text, names = statement.query.numbered[-1]
    connection.execute(f"PREPARE looked_at AS {text}")
    cursor = psycopg.ClientCursor(connection)
    values = ", ".join(cursor.mogrify("%s", [statement.parameters[name]]) for name in names)
    row = connection.execute(f"EXPLAIN (FORMAT json) EXECUTE looked_at({values})").fetchone()
    connection.execute("DEALLOCATE looked_at")
    assert row is not None
    return list(_walk(row[0][0]["Plan"]))


async def test_pending_and_stale_look_ups_use_their_partial_indexes(fresh_postgres_url: str) -> None:
    """EXPLAIN, with the planner free to read the whole table if it would rather."""
    async with opened(fresh_postgres_url) as memory:
        transaction = Transaction(TEA, "I see.")
        one = memory.task.using(tenant="acme")
        calls = [one.using(unique=Unique(f"r{n}", until="forever")).call("ada", transaction) for n in range(JOBS)]
        await memory.app.aenqueue_many(calls)
        assert len(await memory.app.aclaim(RUNNING, queues=[QUEUE])) == RUNNING
        store = memory.app.store
        with psycopg.connect(fresh_postgres_url, autocommit=True) as connection:
            connection.execute("VACUUM ANALYZE windlass_jobs")
            definitions: dict[str, str] = dict(connection.execute(PREDICATES).fetchall())
            for mode in ("custom", "generic"):
                connection.execute(f"SET plan_cache_mode = force_{mode}_plan")
                request = ClaimRequest(queue=QUEUE, limit=10, token=uuid4(), worker="w")
                pending = plan(connection, next(store.claim(request)))
                assert "windlass_jobs_ready" in {name for _, name in scans(pending)}
                assert not seq_scans(pending)
                stale = plan(connection, next(store.rescue(100)))
                assert "windlass_jobs_running" in {name for _, name in scans(stale)}
                assert not seq_scans(stale)
    assert "WHERE ((state = 'pending'" in definitions["windlass_jobs_ready"]
    assert "WHERE (state = 'running'" in definitions["windlass_jobs_running"]

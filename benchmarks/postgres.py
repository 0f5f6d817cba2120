"""PostgreSQL: Windlass against hand-written SQL on the same tables, in the same run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import psycopg

from windlass.stores.columns import COLUMNS, Use
from windlass.stores.postgres.store import PostgresStore

from .measure import Figure, claim, drain, enqueue, in_turn, new_jobs, seconds

SCHEMA = "windlass_bench"
BATCH = 500

CLAIM = """
UPDATE windlass_jobs SET state = 'running', attempt = attempt + 1, token = %(token)b, worker = 'hand',
    claimed_at = now(), leased_until = now() + interval '60 s'
WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM windlass_jobs
    WHERE queue = 'bench' AND state = 'pending' AND (lane IS NULL OR lane = 2) AND run_at <= now()
    ORDER BY rank, run_at, id LIMIT %(limit)s FOR UPDATE SKIP LOCKED))
AND set_config('synchronous_commit', 'off', true) IS NOT NULL
RETURNING id, token, type, input::text, queue, tenant, attempt, max_attempts, chain_id, chain_index, trace
"""
SETTLE = """
WITH given AS (
    SELECT unnest(%(ids)b::uuid[]) AS id, unnest(%(tokens)b::uuid[]) AS token, unnest(%(outputs)b::text[]) AS output
), gone AS (
    DELETE FROM windlass_jobs AS j USING given AS g WHERE j.id = g.id AND j.token = g.token RETURNING j.*, g.output
)
INSERT INTO windlass_history (id, run_at, created_at, finished_at, purge_at, state, attempt, slot, rank, chain_index,
    chain_id, queue, type, tenant, input, output, max_attempts, lease_seconds, keep_seconds, policy, token, worker,
    claimed_at)
SELECT id, run_at, created_at, now(), now() + interval '7 days', 'completed', attempt, 3, rank, chain_index, chain_id,
    queue, type, tenant, input, output, max_attempts, lease_seconds, keep_seconds, policy, token, worker, claimed_at
FROM gone
"""


def measure_postgres(url: str, jobs: int, beside: int) -> list[Figure]:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE")
        store = PostgresStore(url, schema=SCHEMA)
        store.connections.run(store.migrate)
        connection.execute(f"SET search_path = {SCHEMA}; SET enable_seqscan = off")
        try:
            return [
                *_drains(store, connection, jobs),
                *_enqueues(store, connection, jobs),
                *_beside(store, connection, jobs, beside),
            ]
        finally:
            connection.execute(f"DROP SCHEMA {SCHEMA} CASCADE")
            store.connections.close()


def _fresh(store: PostgresStore, connection: psycopg.Connection[Any], jobs: int) -> None:
    connection.execute("TRUNCATE windlass_jobs, windlass_history, windlass_tallies")
    enqueue(store, new_jobs(jobs))
    connection.execute("VACUUM ANALYZE windlass_jobs")


def _drains(store: PostgresStore, connection: psycopg.Connection[Any], jobs: int) -> list[Figure]:
    def ours() -> float:
        _fresh(store, connection, jobs)
        return seconds(lambda: drain(store, BATCH))

    def by_hand() -> float:
        _fresh(store, connection, jobs)
        return seconds(lambda: _drain_by_hand(connection))

    own, hand = in_turn(ours, by_hand, rounds=5)
    return [
        Figure("postgres", f"claim + complete, batch {BATCH}, history kept", jobs / own),
        Figure("postgres", "… the same by hand-written SQL", jobs / hand),
        Figure("postgres", "… time against hand-written", own / hand, "×", wanted=1.3, at_most=True),
    ]


def _drain_by_hand(connection: psycopg.Connection[Any]) -> None:
    cursor = connection.cursor(binary=True)
    while rows := cursor.execute(CLAIM, {"token": uuid4(), "limit": BATCH}, prepare=True).fetchall():
        ids, tokens = [row[0] for row in rows], [row[1] for row in rows]
        cursor.execute(SETTLE, {"ids": ids, "tokens": tokens, "outputs": ["null"] * len(ids)}, prepare=True)


def _enqueues(store: PostgresStore, connection: psycopg.Connection[Any], jobs: int) -> list[Figure]:
    copied = [column.name for column in COLUMNS.used(Use.PLAIN, Use.LIVE)]
    columns = [name for name in copied if name not in ("run_at", "created_at", "state")]
    insert = (
        f"INSERT INTO windlass_jobs (state, run_at, created_at, {', '.join(columns)}) "
        f"VALUES ('pending', now(), now(), {', '.join(['%s'] * len(columns))})"
    )

    def timed(work: Callable[[], Any]) -> float:
        connection.execute("TRUNCATE windlass_jobs")
        return seconds(work)

    def by_copy() -> float:
        made = new_jobs(jobs)
        return timed(lambda: enqueue(store, made))

    def by_executemany() -> float:
        made = [
            tuple((job.chain_id or job.id) if name == "chain_id" else getattr(job, name) for name in columns)
            for job in new_jobs(jobs)
        ]

        def insert_all() -> None:
            with connection.transaction():
                connection.cursor().executemany(insert, made)

        return timed(insert_all)

    copy, many = in_turn(by_copy, by_executemany)
    return [
        Figure("postgres", "bulk enqueue (COPY)", jobs / copy),
        Figure("postgres", "… by executemany", jobs / many),
        Figure("postgres", "… COPY against executemany", many / copy, "×", wanted=2.0),
    ]


FILL_HISTORY = """
INSERT INTO windlass_history (id, run_at, created_at, finished_at, purge_at, state, attempt, slot, rank, chain_index,
    chain_id, queue, type, tenant, input, output, max_attempts, keep_seconds, token)
SELECT id, now(), now(), now(), now() + interval '7 days', 'completed', 1, i %% 8, 0, 0, id, 'bench', 'noop', '',
    '{}', 'null', 20, NULL, id
FROM (SELECT i, gen_random_uuid() AS id FROM generate_series(1, %(rows)s) AS i) AS made
"""
FILL_FUTURE = """
INSERT INTO windlass_jobs (id, run_at, created_at, state, chain_id, queue, type, input, max_attempts, lease_seconds,
    keep_seconds, policy)
SELECT id, now() + interval '1 day' + i * interval '1 s', now(), 'pending', id, 'bench', 'noop', '{}', 20, 60, NULL,
    '{}'
FROM (SELECT i, gen_random_uuid() AS id FROM generate_series(1, %(rows)s) AS i) AS made
"""


def _beside(store: PostgresStore, connection: psycopg.Connection[Any], jobs: int, beside: int) -> list[Figure]:
    """The time of claims, alone and with many finished and future jobs in the tables."""
    sample = min(jobs, 20_000)

    def claims() -> float:
        enqueue(store, new_jobs(sample))
        connection.execute("VACUUM ANALYZE windlass_jobs")
        took = seconds(lambda: [None for _ in iter(lambda: claim(store, BATCH), [])])
        connection.execute("DELETE FROM windlass_jobs WHERE state = 'running'")
        return took

    connection.execute("TRUNCATE windlass_jobs, windlass_history, windlass_tallies")
    (alone,) = in_turn(claims, rounds=5)
    connection.execute(FILL_HISTORY, {"rows": beside})
    connection.execute(FILL_FUTURE, {"rows": beside})
    connection.execute("VACUUM ANALYZE windlass_jobs, windlass_history")
    (crowded,) = in_turn(claims, rounds=5)
    label = f"{beside:,} finished and {beside:,} future jobs"
    return [
        Figure("postgres", f"claim, batch {BATCH}", sample / alone),
        Figure("postgres", f"… beside {label}", sample / crowded),
        Figure("postgres", "… time against alone", crowded / alone, "×", wanted=1.2, at_most=True),
    ]

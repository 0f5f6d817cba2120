"""Pruning on PostgreSQL, where finished jobs go by day: what it counts, and what it finds."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from windlass import Windlass

DAY = 86_400


@pytest.fixture
def app(fresh_postgres_url: str) -> Iterator[Windlass]:
    app = Windlass(fresh_postgres_url)
    app.migrate()
    yield app
    app.close()


def finish(app: Windlass, count: int = 1, **options: Any) -> None:
    for _ in range(count):
        app.enqueue("work", **options)
    for attempt in app.claim(count):
        attempt.complete()


def prune(app: Windlass) -> int:
    return sum(iter(lambda: app.run_operation(lambda: app.store.prune(1000)), 0))


def test_vacuum_sees_to_every_table(app: Windlass) -> None:
    finish(app)
    app.run_operation(app.store.vacuum)
    with psycopg.connect(app.url) as connection:
        rows = connection.execute(
            "SELECT relname FROM pg_stat_user_tables WHERE vacuum_count = 0 AND relname NOT LIKE '%migrations' "
            "AND relname <> 'windlass_history'"  # has partitions, which are
        ).fetchall()
        options = connection.execute("SELECT reloptions FROM pg_class WHERE relname = 'windlass_edges'").fetchone()
    assert rows == []
    assert options is not None
    assert "autovacuum_vacuum_scale_factor=0.02" in options[0]


def test_counts_that_are_folded_while_their_slot_is_emptied_go_with_it(app: Windlass) -> None:
    finish(app, 5, keep=2 * DAY)
    app.store.clock.move(timedelta(days=5))
    fold = app.store.sql["fold_tallies"].statements[0]  # type: ignore[attr-defined]
    with psycopg.connect(app.url) as folding, psycopg.connect(app.url, autocommit=True) as watching:
        folding.execute(fold)
        with ThreadPoolExecutor(1) as pool:
            pruning = pool.submit(prune, app)
            deadline = time.monotonic() + 5
            waiting = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
            while not pruning.done() and time.monotonic() < deadline and not watching.execute(waiting).fetchall():
                pass
            folding.commit()
            pruning.result(20)
    prune(app)
    assert len(app.list()) == 0
    assert app.counts().total == 0


def test_a_slot_that_was_not_emptied_in_its_time_is_found_whatever_its_first_row_is(app: Windlass) -> None:
    """The first row is one of the ring's next round, whichever way one reads: it has taken the place of one that was
    deleted, and its job was enqueued before all others."""
    app.enqueue("work", queue="late", keep=2 * DAY)
    finish(app, 21, keep=2 * DAY)
    app.store.clock.move(timedelta(days=32))
    with psycopg.connect(app.url, autocommit=True) as connection:
        first = "SELECT id FROM windlass_history ORDER BY slot, ctid LIMIT 1"
        connection.execute(f"DELETE FROM windlass_history WHERE id = ({first})")
        connection.execute("VACUUM windlass_history")
    (late,) = app.claim(1, queues=["late"])
    late.complete()
    with psycopg.connect(app.url) as connection:
        by_place = connection.execute("SELECT purge_at, slot FROM windlass_history ORDER BY ctid").fetchall()
        by_id = connection.execute("SELECT purge_at FROM windlass_history ORDER BY id").fetchall()
    assert len({slot for _, slot in by_place}) == 1
    assert by_place[0][0] == by_id[0][0] == max(moment for moment, _ in by_place), "the scene is not set"
    prune(app)
    assert [job.id for job in app.list()] == [late.job.id]

"""Two batches that ask for the same unique keys in opposite orders: one waits for the other, and neither for both."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import psycopg
import pytest

from windlass import Call, Unique, Windlass

# Between two rows of one INSERT there is time for the other batch: without the right order they deadlock every time.
SLOW_INSERTS = """
CREATE FUNCTION wait_a_moment() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.2); RETURN NEW; END';
CREATE TRIGGER slow BEFORE INSERT ON {table} FOR EACH ROW EXECUTE FUNCTION wait_a_moment()
"""


@pytest.fixture
def app(fresh_postgres_url: str) -> Iterator[Windlass]:
    app = Windlass(fresh_postgres_url)
    app.migrate()
    yield app
    app.close()


@pytest.mark.parametrize("order_key", [None, "line"], ids=["", "in line"])
@pytest.mark.parametrize(
    ("until", "table"), [("finished", "windlass_jobs"), ("forever", "windlass_keys")], ids=["finished", "forever"]
)
def test_batches_with_keys_in_opposite_orders_do_not_deadlock(
    app: Windlass, fresh_postgres_url: str, until: str, table: str, order_key: str | None
) -> None:
    @app.task
    def work() -> None: ...

    with psycopg.connect(fresh_postgres_url) as connection:
        connection.execute(SLOW_INSERTS.format(table=table))
    barrier = Barrier(2)

    def enqueue(keys: str) -> list[bool]:
        calls: list[Call[Any]] = [
            work.using(unique=Unique(key, until=until), order_key=order_key).call() for key in keys
        ]
        with psycopg.connect(fresh_postgres_url) as connection:  # on our own connections a deadlock is tried again
            barrier.wait()
            return [job.created for job in app.enqueue_many(calls, connection=connection)]

    with ThreadPoolExecutor(2) as threads:
        created = [*threads.map(enqueue, ["ab", "ba"])]
    assert sorted(created) == [[False, False], [True, True]]


def test_keys_that_outlive_their_jobs_are_taken_in_order(app: Windlass, fresh_postgres_url: str) -> None:
    """Whatever plan the server makes of it: two servers, or two sessions, may make different ones."""

    @app.task
    def work() -> None: ...

    app.enqueue_many([work.using(unique=Unique(f"{n}", until="forever")).call() for n in (5, 3, 9, 1, 7, 2, 8, 4, 6)])
    with psycopg.connect(fresh_postgres_url) as connection:
        rows = connection.execute("SELECT key FROM windlass_keys ORDER BY ctid").fetchall()
    assert "".join(key for (key,) in rows) == "123456789"

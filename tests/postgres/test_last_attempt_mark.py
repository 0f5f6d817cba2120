"""The mark of a last attempt on PostgreSQL: to ask again for one that was made is no write, which might wait for a slow
commit as the first one did."""

from __future__ import annotations

import psycopg

from windlass import Windlass
from windlass.stores.store import Lease


def test_a_mark_that_was_made_is_found_without_a_write(migrated_postgres_url: str) -> None:
    app = Windlass(migrated_postgres_url)
    job = app.enqueue("once", {}, max_attempts=1)
    (attempt,) = app.claim(1)
    lease = Lease(job.id, attempt.token, 0)
    with psycopg.connect(migrated_postgres_url, autocommit=True) as connection:
        version = "SELECT xmin::text, xmax::text, begun FROM windlass_jobs"
        connection.execute("UPDATE windlass_jobs SET begun = false")
        assert app.run_operation(lambda: app.store.begin([lease])) == []
        before = connection.execute(version).fetchone()
        assert before is not None
        assert before[2] is True
        assert app.run_operation(lambda: app.store.begin([lease])) == []
        assert connection.execute(version).fetchone() == before
    app.close()

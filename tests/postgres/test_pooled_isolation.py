"""Behind a pooler, which takes no options: our level is said with each transaction, and a database is known again."""

from __future__ import annotations

import psycopg
import pytest

from tests.pgbouncer import PgBouncer
from windlass import Windlass
from windlass.operation import Operation, Statement
from windlass.stores.sql.query import Query

LEVEL = Query("level", "SHOW transaction_isolation")


@pytest.mark.parametrize("settings", [{}, {"ignore_startup_parameters": "options"}])
async def test_our_own_transactions_are_read_committed_behind_a_pooler(
    fresh_postgres_url: str, settings: dict[str, str]
) -> None:
    with psycopg.connect(fresh_postgres_url, autocommit=True) as connection:
        name = connection.info.dbname
        connection.execute(f"ALTER DATABASE {name} SET default_transaction_isolation = 'repeatable read'")

    def levels() -> Operation[list[str]]:
        alone = yield Statement(LEVEL, alone=True)
        inside = yield Statement(LEVEL)
        return [alone[0][0], inside[0][0]]

    with PgBouncer(fresh_postgres_url, settings=settings) as pooler:
        app = Windlass(pooler.url)
        app.migrate()
        assert app.store.connections.run(levels) == ["read committed"] * 2
        assert await app.store.connections.arun(levels) == ["read committed"] * 2
        await app.aclose()


def test_a_connection_to_the_same_database_is_welcome_whichever_way_it_came(fresh_postgres_url: str) -> None:
    with PgBouncer(fresh_postgres_url) as pooler:
        for queue, caller in ((pooler.url, fresh_postgres_url), (fresh_postgres_url, pooler.url)):
            app = Windlass(queue)
            with psycopg.connect(caller, prepare_threshold=None) as connection:
                app.migrate()
                app.enqueue("anything", connection=connection)
            app.close()
        assert len(app.list()) == 2
        app.close()

"""`attempt.transaction()` tells PostgreSQL whose job it is, for as long as that transaction lasts: for row security."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from windlass import Attempt, Windlass

ASK = "SELECT current_setting('windlass.tenant', true)"


@pytest.fixture
def app(fresh_postgres_url: str) -> Iterator[Windlass]:
    app = Windlass(fresh_postgres_url)
    yield app
    app.close()


def named(tenant: str | None) -> dict[str, Any]:
    return {} if tenant is None else {"tenant": tenant}


def claim(app: Windlass, tenant: str | None) -> Attempt:
    job = app.enqueue("t", {}, **named(tenant))
    (attempt,) = app.claim(1)
    assert attempt.job.id == job.id
    return attempt


def asked(connection: Any) -> tuple[int, str | None]:
    """Which session, and whose."""
    row = connection.execute(f"SELECT pg_backend_pid(), ({ASK})").fetchone()
    return row[0], row[1]


def test_a_block_says_whose_job_it_is_and_the_next_on_that_connection_does_not(app: Windlass) -> None:
    sessions, tenants = [], []
    for tenant in (None, "acme", None, "größe 'x'; --", None):
        with claim(app, tenant).transaction() as connection:
            session, whose = asked(connection)
            sessions.append(session)
            tenants.append(whose or None)
    assert tenants == [None, "acme", None, "größe 'x'; --", None]
    assert len(set(sessions)) == 1, "each had a connection of its own: this shows nothing"


async def test_an_async_block_does_so_too(app: Windlass) -> None:
    sessions, tenants = [], []
    for tenant in ("acme", None, "other"):
        await app.aenqueue("t", {}, **named(tenant))
        (attempt,) = await app.aclaim(1)
        async with attempt.transaction() as connection:
            cursor = await connection.execute(f"SELECT pg_backend_pid(), ({ASK})")
            session, whose = await cursor.fetchone()
            sessions.append(session)
            tenants.append(whose or None)
    assert tenants == ["acme", None, "other"]
    assert len(set(sessions)) == 1
    await app.aclose()


def test_a_block_that_is_rolled_back_leaves_nothing_behind(app: Windlass) -> None:
    seen = []

    def break_off() -> None:
        with claim(app, "acme").transaction() as connection:
            seen.append(asked(connection))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        break_off()
    with claim(app, None).transaction() as connection:
        seen.append(asked(connection))
    session = seen[0][0]
    assert seen == [(session, "acme"), (session, "")]


def test_a_tenant_holds_through_a_savepoint_that_is_undone(app: Windlass) -> None:
    with claim(app, "acme").transaction() as connection:
        with pytest.raises(psycopg.errors.DivisionByZero), connection.transaction():
            connection.execute("SELECT 1 / 0")
        assert asked(connection)[1] == "acme"


def test_a_job_without_a_tenant_costs_no_statement(app: Windlass, monkeypatch: pytest.MonkeyPatch) -> None:
    named: list[str] = []
    name_tenant = app.store.name_tenant

    def note(tenant: str) -> Any:
        named.append(tenant)
        return name_tenant(tenant)

    monkeypatch.setattr(app.store, "name_tenant", note)
    for tenant in (None, "acme", None):
        with claim(app, tenant).transaction():
            pass
    assert named == ["acme"]


def test_row_security_of_your_own_tables_holds_in_a_block(app: Windlass) -> None:
    """A role whom the policy binds writes and sees the rows of the job's tenant, and no others."""
    app.migrate()
    with psycopg.connect(app.url, autocommit=True) as owner:
        owner.execute(
            """
            CREATE TABLE memories (tenant text NOT NULL, text text NOT NULL);
            ALTER TABLE memories ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
            CREATE POLICY own_tenant ON memories USING (tenant = current_setting('windlass.tenant', true));
            """
        )
        role = f"writer_{owner.info.backend_pid}"
        owner.execute(f"CREATE ROLE {role}; GRANT SELECT, INSERT ON memories TO {role}")
        try:
            for tenant in ("acme", "other"):
                with claim(app, tenant).transaction() as connection:
                    connection.execute(f"SET LOCAL ROLE {role}")
                    connection.execute("INSERT INTO memories VALUES (%s, 'mine')", [tenant])
                    assert connection.execute("SELECT tenant FROM memories").fetchall() == [(tenant,)]
                    refused = pytest.raises(psycopg.errors.InsufficientPrivilege, match="row-level security")
                    with refused, connection.transaction():
                        connection.execute("INSERT INTO memories VALUES ('somebody else', 'not mine')")
                    connection.execute("RESET ROLE")
            with claim(app, None).transaction() as connection:
                connection.execute(f"SET LOCAL ROLE {role}")
                assert connection.execute("SELECT tenant FROM memories").fetchall() == []
                connection.execute("RESET ROLE")
            assert owner.execute("SELECT count(*) FROM memories").fetchone() == (2,)
        finally:
            owner.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")

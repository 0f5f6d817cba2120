"""On PostgreSQL: the database itself knows for which tenant a completing block writes."""

from __future__ import annotations

import asyncio

import psycopg

from .conftest import ask, opened, texts
from .test_system import working

GUARD = """
CREATE FUNCTION of_the_jobs_tenant() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF NEW.tenant IS DISTINCT FROM current_setting('windlass.tenant', true) THEN
        RAISE 'a memory of % is written for %', NEW.tenant, current_setting('windlass.tenant', true);
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER guard BEFORE INSERT ON memories FOR EACH ROW EXECUTE FUNCTION of_the_jobs_tenant();
"""


async def test_each_job_writes_in_its_own_tenants_context(fresh_postgres_url: str) -> None:
    """A trigger, which binds a superuser too, refuses what is written for another than the job's tenant."""
    tenants = ["acme", "globex", "initech"] * 3
    async with opened(fresh_postgres_url) as memory:
        with psycopg.connect(fresh_postgres_url, autocommit=True) as connection:
            connection.execute(GUARD)
        jobs = [await ask(memory, tenant, f"request {number}") for number, tenant in enumerate(tenants)]
        async with working(memory):
            await asyncio.gather(*(job.aresult(60) for job in jobs))
        assert [(await job.arefresh()).attempt for job in jobs] == [1] * len(jobs)
        for tenant in set(tenants):
            assert len(await texts(memory, tenant)) == 6

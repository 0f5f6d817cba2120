"""The conformance suite on PostgreSQL: one schema for all tests, emptied for each."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import psycopg
import pytest

from tests.conformance.stores import closing, emptied
from windlass.conformance import Conformance
from windlass.stores.opening import open_store
from windlass.stores.store import Store


@pytest.fixture(scope="module")
def schema(postgres_url: str) -> Iterator[str]:
    """A schema with its tables; it takes half a second to make."""
    name = f"conformance_{uuid4().hex[:12]}"
    with closing(open_store(postgres_url, schema=name)) as store:
        store.connections.run(store.migrate)
    yield name
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f'DROP SCHEMA "{name}" CASCADE')


class TestPostgres(Conformance):
    @pytest.fixture
    def store(self, postgres_url: str, schema: str) -> Iterator[Store]:
        with closing(open_store(postgres_url, schema=schema)) as store:
            yield emptied(store)

    @pytest.fixture
    def bare_store(self, fresh_postgres_url: str) -> Iterator[Store]:
        with closing(open_store(fresh_postgres_url)) as store:
            yield store

"""A rolling deploy: what code does beside a schema that is newer than itself."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conformance.stores import closing
from windlass.errors import SchemaMismatch
from windlass.operation import Operation, Request
from windlass.stores.opening import open_store
from windlass.stores.sql.store import SqlStore
from windlass.stores.store import Store


@pytest.fixture
def store(store_url: str) -> Iterator[Store]:
    with closing(open_store(store_url)) as store:
        store.connections.run(store.migrate)
        yield store


def record(store: Store, min_compatible: int) -> Operation[None]:
    """As a later version would leave it."""
    if isinstance(store, SqlStore):
        yield store.dialect.queries.statement(
            "schema_record", version=99, name="0099_later", min_compatible=min_compatible
        )
    else:
        document = {"_id": 99, "name": "0099 later", "min_compatible": min_compatible}
        yield Request("windlass_migrations", "insert_one", (document,))


def test_older_code_continues_where_the_newer_schema_admits_it(store: Store) -> None:
    store.connections.run(lambda: record(store, 1))
    assert store.connections.run(store.check_schema)
    assert store.connections.run(store.migrate) == []
    assert store.connections.run(store.counts).total == 0


def test_older_code_is_refused_where_the_newer_schema_does_not(store: Store) -> None:
    store.connections.run(lambda: record(store, 99))
    for operation in (store.check_schema, store.migrate):
        with pytest.raises(SchemaMismatch, match="99"):
            store.connections.run(operation)

from __future__ import annotations

from collections.abc import Iterator

import pytest

from windlass.stores.mongodb import MongoStore


@pytest.fixture
def store(fresh_mongodb_url: str) -> Iterator[MongoStore]:
    """A store on an empty database, migrated."""
    store = MongoStore(fresh_mongodb_url)
    store.connections.run(store.migrate)
    yield store
    store.wakeup.close()
    store.connections.close()

"""One database per store and module: its tables are made once, and emptied by each test as often as it likes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import psycopg
import pytest
from pymongo import MongoClient

from windlass.stores.opening import open_store
from windlass.stores.store import Store


@pytest.fixture(scope="module", params=["sqlite", "postgres", "mongodb"])
def shared_store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A migrated store on each of the three databases in turn."""
    name = f"windlass_test_{uuid4().hex[:12]}"
    if request.param == "sqlite":
        store = open_store(f"sqlite:///{tmp_path_factory.mktemp('sqlite') / 'jobs.db'}")
    else:
        url: str = request.getfixturevalue(f"{request.param}_url")
        if request.param == "postgres":
            store = open_store(url, schema=name)
        else:
            store = open_store(urlsplit(url)._replace(path=f"/{name}").geturl())
    store.connections.run(store.migrate)
    yield store
    store.wakeup.close()
    store.connections.close()
    if request.param == "postgres":
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(f'DROP SCHEMA "{name}" CASCADE')
    elif request.param == "mongodb":
        client: MongoClient[Any] = MongoClient(url)
        with client:
            client.drop_database(name)

"""An app on each of the three stores. Their schema is made once: what is new to each test is that it is empty."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import psycopg
import pytest
from pymongo import MongoClient

from tests.api.either import Either
from tests.concurrency.empty_store import empty
from windlass import Windlass


@pytest.fixture(scope="session")
def postgres_home(postgres_url: str) -> Iterator[dict[str, str]]:
    schema = f"api_{uuid4().hex[:12]}"
    yield {"url": postgres_url, "schema": schema}
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE")


@pytest.fixture(scope="session")
def mongodb_home(mongodb_url: str) -> Iterator[dict[str, str]]:
    name = f"api_{uuid4().hex[:12]}"
    yield {"url": urlsplit(mongodb_url)._replace(path=f"/{name}").geturl()}
    client: MongoClient[Any] = MongoClient(mongodb_url)
    with client:
        client.drop_database(name)


@pytest.fixture(scope="session")
def sqlite_home(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return {"url": f"sqlite:///{tmp_path_factory.mktemp('api') / 'jobs.db'}"}


@pytest.fixture
def new_app(request: pytest.FixtureRequest) -> Iterator[Callable[..., Windlass]]:
    """Makes apps on one and the same queue, which is empty at first."""
    home: dict[str, Any] = request.getfixturevalue(f"{request.param}_home")
    apps: list[Windlass] = []

    def make(**options: Any) -> Windlass:
        apps.append(Windlass(**home, **options))
        return apps[-1]

    first = make()
    first.migrate()
    empty(first.store)
    yield make
    for app in apps:
        app.close()


@pytest.fixture
def app(new_app: Callable[..., Windlass]) -> Windlass:
    return new_app()


@pytest.fixture(params=["sync", "async"])
async def either(app: Windlass, request: pytest.FixtureRequest) -> AsyncIterator[Either]:
    """The app by its sync methods, and by their async twins."""
    yield Either(app, is_async=request.param == "async")
    await app.aclose()

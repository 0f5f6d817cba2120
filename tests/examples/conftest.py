"""Databases that are made once for the tests of an example, and emptied between them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import psycopg
import pytest
from pymongo import MongoClient


@pytest.fixture(scope="session")
def sqlite_home(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"sqlite:///{tmp_path_factory.mktemp('examples') / 'jobs.db'}"


@pytest.fixture(scope="session")
def postgres_home(postgres_url: str) -> Iterator[str]:
    name = f"examples_{uuid4().hex}"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} TEMPLATE template0")
        yield urlsplit(postgres_url)._replace(path=f"/{name}").geturl()
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(scope="session")
def mongodb_home(mongodb_url: str) -> Iterator[str]:
    name = f"examples_{uuid4().hex}"
    yield urlsplit(mongodb_url)._replace(path=f"/{name}").geturl()
    client: MongoClient[Any] = MongoClient(mongodb_url)
    with client:
        client.drop_database(name)

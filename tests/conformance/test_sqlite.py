"""The conformance suite on SQLite: a new file for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conformance.stores import closing
from windlass.conformance import Conformance
from windlass.stores.opening import open_store
from windlass.stores.store import Store


class TestSqlite(Conformance):
    @pytest.fixture
    def store(self, fresh_sqlite_url: str) -> Iterator[Store]:
        with closing(open_store(fresh_sqlite_url)) as store:
            yield store

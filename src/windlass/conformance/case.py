"""What every part of the suite is built on: the fixtures."""

from __future__ import annotations

import pytest

from ..stores.store import Store
from .bench import Bench


class Case:
    """A group of tests on one store. `store` is for the author of the store to give."""

    @pytest.fixture
    def store(self) -> Store:
        """A store on an empty database. It need not be migrated; who gives it also closes it."""
        raise NotImplementedError("give the suite a fixture `store`: a store on an empty database")

    @pytest.fixture
    def bare_store(self, store: Store) -> Store:
        """One that is not migrated. Give it where `store`, to be quick, hands out one that is."""
        return store

    @pytest.fixture
    def bench(self, store: Store) -> Bench:
        if not store.connections.run(store.check_schema):
            store.connections.run(store.migrate)
        return Bench(store)

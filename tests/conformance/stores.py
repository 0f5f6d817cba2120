"""Stores for the suite, and what becomes of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests.concurrency.empty_store import empty
from windlass.stores.store import Store


@contextmanager
def closing(store: Store) -> Iterator[Store]:
    try:
        yield store
    finally:
        store.wakeup.close()
        store.connections.close()


def emptied(store: Store) -> Store:
    """Quicker than a new one: nothing in it but its schema."""
    empty(store)
    return store

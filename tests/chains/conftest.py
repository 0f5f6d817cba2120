from __future__ import annotations

from collections.abc import Iterator

import pytest

from windlass import Windlass

from .ledger import Ledger

__all__ = ["Ledger"]


@pytest.fixture
def app(store_url: str) -> Iterator[Windlass]:
    app = Windlass(store_url)
    yield app
    app.close()


@pytest.fixture
def ledger(store_url: str) -> Iterator[Ledger]:
    ledger = Ledger(store_url)
    yield ledger
    ledger.close()

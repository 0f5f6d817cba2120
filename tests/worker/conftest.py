"""An app on each store, and ways to wait for what a worker does."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator

import pytest

from windlass import Windlass


@pytest.fixture
def app(store_url: str) -> Iterator[Windlass]:
    app = Windlass(store_url)
    app.migrate()
    yield app
    app.close()


async def until(condition: Callable[[], object], seconds: float = 20.0) -> None:
    """Until it holds; fails when that takes too long."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        await asyncio.sleep(0.01)

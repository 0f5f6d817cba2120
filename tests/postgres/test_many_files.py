"""A process that has more files open than select() can name."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from typing import cast

import pytest

from windlass import Windlass
from windlass.stores.postgres.wakeup import PostgresWakeup
from windlass.stores.wakeup import Hint

BEYOND_SELECT = 1_100


@pytest.fixture
def many_files() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4_096), hard))
    files = [os.open(os.devnull, os.O_RDONLY) for _ in range(BEYOND_SELECT)]
    yield
    for file in files:
        os.close(file)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("many_files")
def test_it_enqueues_and_tells_of_it(fresh_postgres_url: str) -> None:
    app = Windlass(fresh_postgres_url)
    app.enqueue("greet")
    app.enqueue("greet")  # on the connection that was kept
    ours = cast("PostgresWakeup", app.store.wakeup)
    delivery = ours.new_delivery()
    delivery.deliver([Hint("ready", "it's \\ odd")])
    delivery.close()
    assert app.counts().pending == 2
    app.close()


@pytest.mark.usefixtures("many_files")
async def test_it_enqueues_async(fresh_postgres_url: str) -> None:
    app = Windlass(fresh_postgres_url)
    await app.aenqueue("greet")
    await app.aenqueue("greet")
    assert (await app.acounts()).pending == 2
    await app.aclose()

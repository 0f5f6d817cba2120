"""One job passes through few files: a newcomer can read all of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.walk.trace import walk
from windlass import Windlass

MOST_FILES = 58  # it is 46 to 50 by timing; the aim is 22: lower this when the walk gets shorter


@pytest.fixture
def app(fresh_postgres_url: str) -> Iterator[Windlass]:
    app = Windlass(fresh_postgres_url)
    yield app
    app.close()


def test_a_job_passes_through_few_files(app: Windlass) -> None:
    files = walk(app)
    print(f"{len(files)} files:", *files, sep="\n")
    assert len(files) <= MOST_FILES

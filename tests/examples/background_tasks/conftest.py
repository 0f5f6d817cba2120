"""Replicas of the example on one database, on each of the three stores in turn.

The databases are made once: what is new to each test is that they are empty.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from examples.background_tasks.memory import MemoryService
from examples.background_tasks.processor import Processor
from examples.background_tasks.settings import Settings
from tests.concurrency.empty_store import empty
from windlass import Job, Windlass


class Replicas:
    """The first replica's service and tasks, and as many processors as a test wants, each with an app of its own."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url, self.folder = url, folder
        self.apps: list[Windlass] = []
        self.app = self.new_app()
        self.service = MemoryService(self.app, folder, Settings().batch_size)
        self.tasks, self.vectors = self.service.tasks, self.service.vectors

    def new_app(self) -> Windlass:
        self.apps.append(Windlass(self.url))
        return self.apps[-1]

    def processor(self, app: Windlass | None = None, **settings: Any) -> Processor:
        return Processor(app or self.app, self.service.handlers, Settings(**settings))

    def pass_time(self, **length: float) -> None:
        for app in self.apps:
            app.store.clock.move(timedelta(**length))

    @property
    def the_task(self) -> Job:
        (task,) = self.tasks.waiting()
        return task

    def due_in(self, task: Job) -> timedelta:
        """From when it was last claimed."""
        claimed = task.attempts[-1].started_at
        assert claimed is not None
        return task.run_at - claimed


@pytest.fixture(params=["sqlite", "postgres", "mongodb"])
def replicas(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Replicas]:
    replicas = Replicas(request.getfixturevalue(f"{request.param}_home"), tmp_path)
    replicas.app.migrate()
    empty(replicas.app.store)
    yield replicas
    for app in replicas.apps:
        app.close()

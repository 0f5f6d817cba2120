"""Replicas of the platform on one database, on each of the three stores in turn; and its HTTP API."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from msgspec.structs import replace

from examples.agent_platform.model import Reply, StandIn
from examples.agent_platform.platform import Platform
from examples.agent_platform.settings import Settings
from examples.agent_platform.web import create_web
from tests.concurrency.empty_store import empty
from windlass import Job, Windlass

TOKEN, REMOTE_TOKEN, SECRET = "a-token-of-the-platform", "a-token-of-remotes", "a-secret-of-the-webhook"


class Moody(StandIn):
    """Fails while it is told to; takes its time for the word "slow"."""

    def __init__(self) -> None:
        self.fails_for: str | None = None
        self.begun, self.go_on = threading.Event(), threading.Event()
        self.answered: list[str] = []

    def answer(self, text: str) -> Reply:
        if text == "slow":
            self.begun.set()
            assert self.go_on.wait(20)
        if self.fails_for is not None and self.fails_for in text:
            raise ConnectionError(f"no answer about {text!r}")
        self.answered.append(text)
        return super().answer(text)


class Replicas:
    """The first replica, and as many more as a test wants; all with one model."""

    def __init__(self, url: str, folder: Path) -> None:
        self.settings = Settings(
            url=url, records=str(folder / "records.db"), token=TOKEN, webhook_secret=SECRET, remote_token=REMOTE_TOKEN
        )
        self.model = Moody()
        self.platforms: list[Platform] = []
        self.first = self.another()
        self.app, self.jobs, self.records = self.first.app, self.first.jobs, self.first.records
        for schedule in self.app.schedules():  # lest one fires when a test lets time pass, or takes its time
            self.app.pause_schedule(schedule.name)

    def another(self, **settings: Any) -> Platform:
        self.platforms.append(Platform(replace(self.settings, **settings), model=self.model))
        return self.platforms[-1]

    def pass_time(self, **length: float) -> None:
        for platform in self.platforms:
            platform.app.store.clock.move(timedelta(**length))

    def turn(self, text: str, *arguments: Any, **options: Any) -> Job:
        return self.jobs.enqueue("agent-turn", {"session": "s", "text": text}, *arguments, **options)

    def work(self, **options: Any) -> int:
        return self.app.run_worker(until_idle=True, **options)


@pytest.fixture(params=["sqlite", "postgres", "mongodb"])
def replicas(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Replicas]:
    """On a database that was made once, and is empty again."""
    url = request.getfixturevalue(f"{request.param}_home")
    app = Windlass(url)
    app.migrate()
    empty(app.store)
    app.close()
    replicas = Replicas(url, tmp_path)
    yield replicas
    replicas.model.go_on.set()
    for platform in replicas.platforms:
        platform.app.close()


@pytest.fixture
async def http(replicas: Replicas) -> AsyncIterator[httpx.AsyncClient]:
    """Whoever has the token."""
    transport = httpx.ASGITransport(create_web(replicas.first), raise_app_exceptions=False)
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=headers) as client:
        yield client
    await replicas.app.aclose()

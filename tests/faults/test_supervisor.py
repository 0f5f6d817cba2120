"""The parent of `--processes N` where the machine, the parent or the disk is slow."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator, Sequence
from uuid import UUID

import pytest

from windlass import Windlass
from windlass.attempt import Attempt
from windlass.operation import Operation
from windlass.worker.supervisor import Child, Reporter, Supervisor


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    """Alive, and silent."""
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


@pytest.fixture
def app(store_url: str) -> Iterator[Windlass]:
    app = Windlass(store_url)
    app.migrate()
    yield app
    app.close()


def test_what_was_said_long_ago_is_no_news(process: subprocess.Popen[bytes]) -> None:
    """A parent that was held up reads it late, and helps at once: the lease runs since it was said."""
    mine, theirs = os.pipe()
    child, report = Child(process, mine), Reporter(theirs, lambda: None)
    report(hold=str(UUID(int=1)), seconds=1.5)
    report(beat=True)
    time.sleep(0.6)
    child.read()
    assert child.needs_help()
    os.close(theirs)
    os.close(mine)


def test_all_silent_children_are_helped_at_once(
    app: Windlass, process: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And each lease is as long as it was."""

    def claim(lease: int) -> Attempt:
        app.enqueue("some", lease=lease)
        (attempt,) = app.claim(1, queues=["default"])
        return attempt

    short, long = [claim(300) for _ in range(5)], claim(6000)
    silent = time.monotonic() - 150
    supervisor = Supervisor(app, [], 5)
    for attempt in short:
        supervisor.children.append(Child(process, -1, silent, silent, ready=True, held={attempt.token: 300.0}))
    supervisor.children[0].held[long.token] = 6000.0

    held: list[tuple[float, set[UUID]]] = []
    hold = app.store.hold

    def noted(tokens: Sequence[UUID], seconds: float) -> Operation[int]:
        held.append((seconds, set(tokens)))
        return hold(tokens, seconds)

    monkeypatch.setattr(app.store, "hold", noted)
    supervisor._help_silent()
    assert held == [(300.0, {attempt.token for attempt in short}), (6000.0, {long.token})]
    for attempt in [*short, long]:
        before, after = attempt.job.lease_expires_at, attempt.job.refresh().lease_expires_at
        assert before is not None
        assert after is not None
        assert after > before

"""The parent of `--processes N` where the machine, the parent or the disk is slow."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from datetime import timedelta
from uuid import UUID

import pytest

from windlass import Windlass
from windlass.attempt import Attempt
from windlass.operation import Operation
from windlass.worker.leases import Leases
from windlass.worker.supervisor import Child, Reporter, Supervisor


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    """Alive, and silent."""
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


def test_an_old_message_is_no_news(process: subprocess.Popen[bytes]) -> None:
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
    """In one write, and each lease is as long as it was, also of those that were claimed together."""

    def claim(*leases: int) -> list[Attempt]:
        app.enqueue_many([app.call("some", lease=lease) for lease in leases])
        return app.claim(10, queues=["default"], lease=None)

    short = [attempt for _ in range(5) for attempt in claim(300)]
    together = claim(600, 6000)
    silent = time.monotonic() - 150
    supervisor = Supervisor(app, [], 5)
    for attempt in short:
        supervisor.children.append(Child(process, -1, silent, silent, ready=True, held={attempt.token: 300.0}))
    supervisor.children[0].held[together[0].token] = 600.0

    held: list[set[UUID]] = []
    hold = app.store.hold

    def noted(tokens: Sequence[UUID]) -> Operation[int]:
        held.append(set(tokens))
        return hold(tokens)

    monkeypatch.setattr(app.store, "hold", noted)
    supervisor._help_silent()
    assert supervisor._helper is not None
    supervisor._helper.join(30)
    assert held == [{attempt.token for attempt in [*short, *together]}]
    for attempt in [*short, *together]:
        before, after = attempt.job.lease_expires_at, attempt.job.refresh().lease_expires_at
        assert before is not None
        assert after is not None
        assert timedelta() < after - before < timedelta(minutes=2)


def test_the_supervisor_learns_the_shortest_lease_of_a_claim(app: Windlass) -> None:
    app.enqueue_many([app.call("some", lease=lease) for lease in (600, 60, 6000)])
    attempts = app.claim(10, queues=["default"], lease=None)
    told: list[dict[str, object]] = []
    leases = Leases(app, lambda attempt, renewal: None, lambda **message: told.append(message))
    leases.hold(attempts, time.monotonic())
    token = str(attempts[0].token)
    assert told[-1] == {"hold": token, "seconds": 60.0}
    leases.let_go(attempts)
    assert told[-1] == {"drop": token}


def test_the_parent_reads_pipes_while_the_store_does_not_answer(
    app: Windlass, process: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A silent child needs help. Another child talks: it would wait for ever for a parent that does not read."""
    answers, asked = threading.Event(), list[Sequence[UUID]]()
    hold = app.store.hold

    def unanswered(tokens: Sequence[UUID]) -> Operation[int]:
        asked.append(tokens)
        answers.wait(10)
        return hold(tokens)

    monkeypatch.setattr(app.store, "hold", unanswered)
    silent = time.monotonic() - 150
    supervisor = Supervisor(app, [], 1)
    child = Child(process, -1, silent, silent, ready=True, held={UUID(int=1): 300.0})
    supervisor.children.append(child)
    supervisor._help_silent()
    assert not answers.is_set()
    first = supervisor._helper
    assert first is not None
    assert first.is_alive(), "the parent has waited for the store"
    child.renewed_at = silent
    supervisor._help_silent()
    assert supervisor._helper is first, "one at a time"
    answers.set()
    first.join(30)
    supervisor._help_silent()
    assert supervisor._helper is not first
    supervisor._helper.join(30)
    assert len(asked) == 2

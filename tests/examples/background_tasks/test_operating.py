"""Dead letters, priorities, expiry, and acting on tasks by Windlass's own means."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from examples.background_tasks.processor import Processor
from examples.background_tasks.settings import Settings
from examples.background_tasks.tasks import QUEUE

from .conftest import Replicas

ROOT = Path(__file__).parents[3]
DELETE = "vector_store_delete"


def test_dead_letters(replicas: Replicas) -> None:
    """With a limit a task ends as failed, is listed with its story, and can be brought back."""
    replicas.vectors.fail_for("a")
    task = replicas.tasks.create(DELETE, {"group": "a"}, max_attempts=3)
    processor = replicas.processor()
    for _ in range(3):
        assert processor.run_once() == 1
        replicas.pass_time(minutes=10)
    assert processor.run_once() == 0
    assert replicas.tasks.counts() == {"failed": 1}
    (dead,) = replicas.app.list(state="failed", queue=QUEUE)
    assert dead == task
    assert [str(attempt.error) for attempt in dead.attempts] == [str(dead.error)] * 3
    assert "does not answer for a" in str(dead.error)

    replicas.vectors.recover()
    assert replicas.app.retry_many(queue=QUEUE) == 1
    assert processor.run_once() == 1
    assert replicas.vectors.deletions == ["a"]
    assert task.refresh().state == "completed"


def test_a_named_dead_letter_does_not_hold_its_name(replicas: Replicas) -> None:
    """A singleton that was given up can be created again."""
    dead = replicas.tasks.create("nobody knows", name="one", max_attempts=1)
    replicas.processor().run_once()
    assert dead.refresh().state == "failed"
    assert replicas.tasks.find("one") is None
    assert replicas.tasks.create("nobody knows", name="one").created


def test_priorities(replicas: Replicas) -> None:
    """The urgent first, whenever they came."""
    for group, priority in (("low", -10), ("normal", 0), ("urgent", 10)):
        replicas.tasks.create(DELETE, {"group": group}, priority=priority)
    assert replicas.processor(batch_size=1).run_once() == 1
    assert replicas.processor().run_once() == 2
    assert replicas.vectors.deletions == ["urgent", "normal", "low"]


def test_expiry(replicas: Replicas) -> None:
    """A task that was not started in time is gone, and so is one that has failed until then."""
    replicas.vectors.fail_for("failing")
    late = replicas.tasks.create(DELETE, {"group": "late"}, expires="1h", delay="2h")
    failing = replicas.tasks.create(DELETE, {"group": "failing"}, expires="15m")
    stays = replicas.tasks.create(DELETE, {"group": "stays"}, delay="3h")
    processor = replicas.processor()
    assert processor.run_once() == 1
    assert failing.refresh().attempt == 1
    replicas.vectors.recover()
    replicas.pass_time(hours=2)
    assert processor.run_once() == 0
    assert [replicas.app.get(task.id) for task in (late, failing)] == [None, None]
    assert list(replicas.tasks.waiting()) == [stays]
    assert replicas.vectors.deletions == []


def test_list_run_now_and_cancel(replicas: Replicas) -> None:
    """What waits is listed; one is not to wait for its time, another is not wanted any more."""
    replicas.vectors.fail_for("a")
    first, second = replicas.service.evict("a"), replicas.service.evict("b")
    later = replicas.tasks.create(DELETE, {"group": "c"}, delay="1h")
    replicas.processor().run_once()
    listed = replicas.app.list(state="pending", type=DELETE, queue=QUEUE)
    assert list(listed) == [later, first]
    assert replicas.app.get(second.id) is None

    replicas.vectors.recover()
    replicas.app.run_now(first.id)
    assert replicas.processor().run_once() == 1
    assert replicas.vectors.deletions == ["b", "a"]

    assert replicas.app.cancel(later.id).state == "cancelled"
    replicas.pass_time(hours=2)
    assert replicas.processor().run_once() == 0
    assert replicas.app.counts().total == 0


def test_cancel_what_a_processor_has_in_hand(replicas: Replicas) -> None:
    """Of a claimed batch, what was not started yet is not started; what runs and fails is not retried."""
    running, second = replicas.service.evict("running"), replicas.service.evict("second")
    ran: list[Any] = []

    def delete(body: Any) -> None:
        ran.append(body["group"])
        replicas.app.cancel(running.id)
        replicas.app.cancel(second.id)
        raise ConnectionError

    assert Processor(replicas.app, {DELETE: delete}, Settings()).run_once() == 2
    assert ran == ["running"]
    assert replicas.app.counts().total == 0


@pytest.mark.parametrize("replicas", ["sqlite"], indirect=True)
def test_from_the_shell(replicas: Replicas) -> None:
    """List, retry and cancel with `windlass jobs`, without a line of code."""

    def shell(*arguments: str) -> str:
        command = [sys.executable, "-m", "windlass", "jobs", *arguments, "--url", replicas.url]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60).stdout

    dead = replicas.tasks.create("nobody knows", max_attempts=1)
    replicas.processor().run_once()
    unwanted = replicas.service.evict("a")
    (line,) = json.loads(shell("list", "--state", "failed", "--json"))["jobs"]
    assert (line["id"], line["error"]) == (str(dead.id), "UnknownTaskType: there is no handler for 'nobody knows'")
    shell("retry", str(dead.id))
    assert dead.refresh().state == "pending"
    shell("cancel", str(unwanted.id))
    assert replicas.app.get(unwanted.id) is None

"""Processors side by side, stopped and killed; and what `run` does."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from examples.background_tasks.processor import Processor
from examples.background_tasks.settings import Settings
from examples.background_tasks.tasks import TaskRepository
from windlass import Windlass

from .conftest import Replicas

ROOT = Path(__file__).parents[3]
DELETE = "vector_store_delete"


def test_a_hundred_tasks_and_three_processors_each_once(replicas: Replicas) -> None:
    """Three at once, each with a batch in hand before any of them has done its first task."""
    groups = [f"group {number}" for number in range(100)]
    for group in groups:
        replicas.service.evict(group)
    all_have_claimed = threading.Barrier(3)
    runs: Counter[str] = Counter()
    done_by: Counter[int] = Counter()

    def work(number: int) -> None:
        def delete(body: Mapping[str, Any]) -> None:
            if not done_by[number]:
                all_have_claimed.wait(30)
            done_by[number] += 1
            runs[body["group"]] += 1

        processor = Processor(replicas.new_app(), {DELETE: delete}, Settings(batch_size=8))
        while processor.run_once():
            pass

    threads = [threading.Thread(target=work, args=[number]) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert runs == dict.fromkeys(groups, 1)
    assert len(done_by) == 3
    assert min(done_by.values()) >= 8
    assert replicas.app.counts().total == 0


def test_one_failing_task_does_not_stop_the_batch(replicas: Replicas) -> None:
    """What stands behind it in the batch is run all the same."""
    for group in ("a", "b", "c", "d"):
        replicas.service.evict(group)
    replicas.tasks.create(DELETE, {"wrong": "body"}, priority=1)
    replicas.vectors.fail_for("b")
    assert replicas.processor().run_once() == 5
    assert replicas.vectors.deletions == ["a", "c", "d"]
    errors = {str(task.error) for task in replicas.tasks.waiting()}
    assert errors == {"VectorStoreDown: the vector store does not answer for b", "KeyError: 'group'"}


def test_a_processor_killed_in_mid_batch_frees_its_tasks(replicas: Replicas) -> None:
    """Kill −9 of a real process. What it had done is done; the rest is free after five minutes, not before."""
    for group in ("a", "b", "hold", "c", "d"):
        replicas.service.evict(group)
    command = [sys.executable, "-m", "tests.examples.background_tasks.dying", replicas.url, str(replicas.folder)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as dying:
        assert dying.stdout is not None
        assert dying.stdout.readline() == "holding\n"
        dying.kill()
    assert replicas.vectors.deletions == ["a", "b"]
    assert replicas.tasks.counts() == {"running": 3}

    processor = replicas.processor()
    replicas.pass_time(minutes=4, seconds=30)
    assert processor.run_once() == 0
    replicas.pass_time(seconds=30)
    processor.run_once()
    replicas.pass_time(seconds=2)  # over which Windlass spreads what it has rescued
    processor.run_once()
    assert Counter(replicas.vectors.deletions) == dict.fromkeys(("a", "b", "hold", "c", "d"), 1)
    assert replicas.app.counts().total == 0


def test_a_processor_that_was_taken_for_dead_starts_nothing_more(replicas: Replicas) -> None:
    """A batch that takes longer than the timeout. What another has by now is neither run nor settled twice."""
    for group in ("slow", "second", "third"):
        replicas.service.evict(group)
    other = replicas.processor(replicas.new_app())
    ran: list[str] = []

    def delete(body: Mapping[str, Any]) -> None:
        ran.append(body["group"])
        if body["group"] == "slow":
            replicas.pass_time(minutes=5)
            other.run_once()
            replicas.pass_time(seconds=2)
            other.run_once()

    assert Processor(replicas.app, {DELETE: delete}, Settings()).run_once() == 3
    assert ran == ["slow"]
    assert sorted(replicas.vectors.deletions) == ["second", "slow", "third"]
    assert replicas.app.counts().total == 0


def test_a_full_batch_is_followed_by_the_next_at_once(replicas: Replicas) -> None:
    """Batch-size is the most that one run takes; the interval is waited for only when nothing more is due."""
    for number in range(5):
        replicas.service.evict(f"group {number}")
    assert replicas.processor(batch_size=2).run_once() == 2
    done = threading.Event()

    def delete(body: Mapping[str, Any]) -> None:
        if body["group"] == "group 4":
            done.set()

    settings = Settings(batch_size=2, processor_interval=timedelta(hours=1))
    processor = Processor(replicas.app, {DELETE: delete}, settings)
    running = threading.Thread(target=processor.run)
    running.start()
    assert done.wait(30)
    processor.stop()
    running.join(30)
    assert not running.is_alive()
    assert replicas.app.counts().total == 0


def test_it_looks_again_every_interval(replicas: Replicas) -> None:
    """A task that comes while the processor waits is run when the interval is over."""
    done = threading.Event()
    settings = Settings(processor_interval=timedelta(milliseconds=50))
    processor = Processor(replicas.app, {DELETE: lambda body: done.set()}, settings)
    running = threading.Thread(target=processor.run)
    running.start()
    for group in ("a", "b"):
        done.clear()
        replicas.service.evict(group)
        assert done.wait(30)
    processor.stop()
    running.join(30)
    assert not running.is_alive()


def test_stopping_gives_back_the_tasks_that_were_not_started(replicas: Replicas) -> None:
    """Of a batch in hand, the current task ends; the others are free at once and no failure is counted."""
    tasks = [replicas.service.evict(group) for group in ("a", "b", "c")]
    processor = Processor(replicas.app, {DELETE: lambda body: processor.stop()}, Settings())
    processor.run()
    assert replicas.app.get(tasks[0].id) is None
    assert [(task.refresh().state, task.refresh().attempt) for task in tasks[1:]] == [("pending", 0)] * 2
    assert replicas.processor().run_once() == 2


def test_a_database_that_is_away_for_a_while_is_waited_for(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The loop goes on, and does its work when the database is back."""
    app = Windlass(f"sqlite:///{tmp_path}/away/tasks.db")
    done = threading.Event()
    processor = Processor(
        app, {DELETE: lambda body: done.set()}, Settings(processor_interval=timedelta(milliseconds=50))
    )
    running = threading.Thread(target=processor.run)
    running.start()
    deadline = time.monotonic() + 30
    while "the database does not answer" not in caplog.text:
        assert running.is_alive()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    (tmp_path / "away").mkdir()
    TaskRepository(app).create(DELETE)
    assert done.wait(30)
    processor.stop()
    running.join(30)
    app.close()

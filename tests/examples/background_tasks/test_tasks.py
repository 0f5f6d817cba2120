"""Tasks, their names and what becomes of them."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing
from datetime import timedelta

import pytest

from examples.background_tasks.memory import MoreToDo
from examples.background_tasks.processor import Processor
from examples.background_tasks.settings import Settings
from examples.background_tasks.tasks import TaskRepository
from windlass import Job

from .conftest import Replicas

DELETE = "vector_store_delete"


def test_created_due_now_and_gone_when_done(replicas: Replicas) -> None:
    """Due now, no failures yet; success deletes the row."""
    task = replicas.tasks.create(DELETE, {"group": "a"})
    assert (task.state, task.attempt, task.error, task.input) == ("pending", 0, None, {"group": "a"})
    assert task.run_at == task.created_at
    assert replicas.processor().run_once() == 1
    assert replicas.vectors.deletions == ["a"]
    assert replicas.app.get(task.id) is None
    assert replicas.app.counts().total == 0


def test_a_failure_is_stored_and_due_in_ten_minutes(replicas: Replicas) -> None:
    """The error is stored, the count goes up by one, the next attempt is ten minutes away."""
    replicas.vectors.fail_for("a")
    task = replicas.service.evict("a")
    processor = replicas.processor()
    for count in (1, 2):
        assert processor.run_once() == 1
        failed = task.refresh()
        assert (failed.state, failed.attempt) == ("pending", count)
        assert str(failed.error) == "VectorStoreDown: the vector store does not answer for a"
        assert timedelta(minutes=10) <= replicas.due_in(failed) < timedelta(minutes=11)
        replicas.pass_time(minutes=10)
    replicas.vectors.recover()
    assert processor.run_once() == 1
    assert replicas.app.get(task.id) is None


def test_there_is_no_limit_of_retries(replicas: Replicas) -> None:
    """Forty failures, twice as many as Windlass allows where nothing is said, and it is still tried again."""
    replicas.vectors.fail_for("a")
    task = replicas.service.evict("a")
    assert task.max_attempts is None
    processor = replicas.processor()
    for _ in range(40):
        assert processor.run_once() == 1
        replicas.pass_time(minutes=10)
    assert (task.refresh().state, task.refresh().attempt) == ("pending", 40)


@pytest.mark.parametrize("replicas", ["sqlite"], indirect=True)
def test_created_in_the_callers_transaction(replicas: Replicas) -> None:
    """A task is created if, and only if, what asks for it is committed."""
    with closing(sqlite3.connect(replicas.url.removeprefix("sqlite:///"))) as connection:
        replicas.tasks.create(DELETE, {"group": "undone"}, connection=connection)
        connection.rollback()
        replicas.tasks.create(DELETE, {"group": "done"}, connection=connection)
        connection.commit()
    assert replicas.processor().run_once() == 1
    assert replicas.vectors.deletions == ["done"]


def test_the_future_is_not_claimed_the_past_is(replicas: Replicas) -> None:
    """A task of the future waits; one of the past is run."""
    future = replicas.tasks.create(DELETE, {"group": "future"}, delay="1h")
    past = replicas.tasks.create(DELETE, {"group": "past"}, run_at=future.created_at - timedelta(hours=1))
    assert past.run_at >= future.created_at  # a moment that has gone by means now
    processor = replicas.processor()
    assert processor.run_once() == 1
    assert replicas.vectors.deletions == ["past"]
    replicas.pass_time(minutes=59)
    assert processor.run_once() == 0
    replicas.pass_time(minutes=1)
    assert processor.run_once() == 1
    assert replicas.vectors.deletions == ["past", "future"]


def test_a_named_task_is_a_singleton_until_it_is_done(replicas: Replicas) -> None:
    """A second create is a no-op, also after a failure and while it runs; when it is done, a new one is made."""
    tasks = replicas.tasks
    replicas.vectors.fail_for("a")
    first = tasks.create(DELETE, {"group": "a"}, name="one")
    assert first.created
    again = tasks.create(DELETE, {"group": "b"}, name="one")
    assert (again, again.created, again.input) == (first, False, {"group": "a"})
    assert tasks.find("one") == first
    assert tasks.find("two") is None

    seen: list[Job] = []
    handlers = {DELETE: lambda body: seen.append(tasks.create(DELETE, {"group": "c"}, name="one"))}
    replicas.processor().run_once()
    assert tasks.create(DELETE, {"group": "b"}, name="one") == first
    replicas.pass_time(minutes=10)
    Processor(replicas.app, handlers, Settings()).run_once()
    assert [(one, one.created, one.state) for one in seen] == [(first, False, "running")]

    assert tasks.find("one") is None
    later = tasks.create(DELETE, {"group": "d"}, name="one")
    assert later.created
    assert later != first
    assert tasks.counts() == {"pending": 1}


def test_two_that_create_one_singleton_at_once_make_one_row(replicas: Replicas) -> None:
    """The database decides, not a look before the insert."""
    names = [f"task {number}" for number in range(10)]
    start = threading.Barrier(2)
    made: list[Job] = []

    def create(tasks: TaskRepository) -> None:
        for name in names:
            start.wait(20)
            made.append(tasks.create(DELETE, {"group": name}, name=name))

    threads = [threading.Thread(target=create, args=[TaskRepository(replicas.new_app())]) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 20
    assert sorted(task.unique_key or "" for task in made if task.created) == sorted(names)
    assert sorted(task.unique_key or "" for task in replicas.tasks.waiting()) == sorted(names)


def test_many_unnamed_coexist(replicas: Replicas) -> None:
    """Without a name, alike tasks are tasks of their own."""
    made = {replicas.service.evict("a") for _ in range(3)}
    assert replicas.tasks.counts() == {"pending": len(made)} == {"pending": 3}
    assert replicas.processor().run_once() == 3
    assert replicas.vectors.deletions == ["a"] * 3


def test_an_unknown_type_is_retried_and_done_by_who_knows_it(replicas: Replicas) -> None:
    """It fails and is tried again, never dropped; a release that has its handler does it."""
    task = replicas.tasks.create("send_postcard", {"to": "grandmother"})
    old = replicas.processor()
    for count in (1, 2):
        assert old.run_once() == 1
        failed = task.refresh()
        assert (failed.state, failed.attempt) == ("pending", count)
        assert str(failed.error) == "UnknownTaskType: there is no handler for 'send_postcard'"
        assert replicas.due_in(failed) >= timedelta(minutes=10)
        replicas.pass_time(minutes=10)
    sent: list[object] = []
    new = Processor(replicas.app, {"send_postcard": sent.append}, Settings())
    assert new.run_once() == 1
    assert sent == [{"to": "grandmother"}]
    assert replicas.app.get(task.id) is None


def test_more_to_do_is_scheduled_again(replicas: Replicas) -> None:
    """A task that says that something is left comes again after the delay, until nothing is."""
    left = [1, 2, 3]

    def eat(body: object) -> None:
        left.pop()
        if left:
            raise MoreToDo(f"{len(left)} left")

    task = replicas.tasks.create("eat")
    processor = Processor(replicas.app, {"eat": eat}, Settings())
    for remaining in (2, 1):
        assert processor.run_once() == 1
        assert processor.run_once() == 0
        again = task.refresh()
        assert str(again.error) == f"MoreToDo: {remaining} left"
        assert replicas.due_in(again) >= timedelta(minutes=10)
        replicas.pass_time(minutes=10)
    assert processor.run_once() == 1
    assert left == []
    assert replicas.app.get(task.id) is None

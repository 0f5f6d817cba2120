"""The two types of task against a vector store that fails."""

from __future__ import annotations

from datetime import timedelta

from examples.background_tasks.memory import MemoryService
from examples.background_tasks.processor import Processor
from examples.background_tasks.settings import Settings

from .conftest import Replicas

RETRY = "vector_store_index_retry"


def test_vector_store_delete_removes_a_group(replicas: Replicas) -> None:
    """The vectors of that group go, those of others stay; while the store is down, nothing goes."""
    service = replicas.service
    blue = service.remember("blue", "the sea is deep")
    green = service.remember("green", "the forest is dark")
    assert service.vectors.nearest("deep sea") == blue.id
    service.vectors.fail_for("blue")
    service.evict("blue")
    replicas.processor().run_once()
    assert service.vectors.nearest("deep sea") == blue.id
    service.vectors.recover()
    replicas.pass_time(minutes=10)
    replicas.processor().run_once()
    assert service.vectors.nearest("deep sea") == green.id
    assert service.vectors.deletions == ["blue"]


def test_index_retry_is_one_task_for_all_that_is_pending(replicas: Replicas) -> None:
    """A singleton; it indexes what it can, and fails on purpose while something is left."""
    service = replicas.service
    service.remember("up", "indexed at once")
    assert replicas.tasks.counts() == {}
    for group in ("down", "worse"):
        service.vectors.fail_for(group)
        for number in range(3):
            service.remember(group, f"{group} {number}")
    task = replicas.the_task
    assert (task.type, task.unique_key, task.input) == (RETRY, RETRY, {})
    assert service.entries.count_pending() == 6

    replicas.processor().run_once()
    failed = task.refresh()
    assert str(failed.error) == "MoreToDo: 6 entries are not indexed yet"
    assert replicas.due_in(failed) >= timedelta(minutes=10)

    service.vectors.recover()
    service.vectors.fail_for("worse")
    replicas.pass_time(minutes=10)
    replicas.processor().run_once()
    assert str(task.refresh().error) == "MoreToDo: 3 entries are not indexed yet"
    assert {entry.group for entry in service.entries.pending(10)} == {"worse"}

    service.vectors.recover()
    replicas.pass_time(minutes=10)
    replicas.processor().run_once()
    assert service.entries.count_pending() == 0
    assert replicas.app.counts().total == 0


def test_index_retry_does_a_batch_at_a_time(replicas: Replicas) -> None:
    """With more pending than a batch holds, it comes again for the rest."""
    service = MemoryService(replicas.app, replicas.folder, 2)
    service.vectors.fail_for("a")
    for number in range(5):
        service.remember("a", f"note {number}")
    service.vectors.recover()
    processor = Processor(replicas.app, service.handlers, Settings())
    left = []
    for _ in range(3):
        processor.run_once()
        left.append(service.entries.count_pending())
        replicas.pass_time(minutes=10)
    assert left == [3, 1, 0]
    assert replicas.app.counts().total == 0


def test_a_finished_index_retry_is_created_again_when_needed(replicas: Replicas) -> None:
    """The next outage has its own task."""
    service = replicas.service
    for outage in (1, 2):
        service.vectors.fail_for("a")
        service.remember("a", f"outage {outage}")
        assert replicas.the_task.created_at is not None
        service.vectors.recover()
        replicas.processor().run_once()
        assert service.entries.count_pending() == 0
        assert replicas.app.counts().total == 0

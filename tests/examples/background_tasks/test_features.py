"""The scenarios of the example, on PostgreSQL, MongoDB and SQLite."""

from __future__ import annotations

import json
import re
import threading
from collections import Counter
from datetime import timedelta

import pytest
from pytest_bdd import given, parsers, scenario, then, when

from examples.background_tasks.settings import Settings
from examples.background_tasks.tasks import QUEUE

from .conftest import Replicas

FEATURES = "../../../examples/background_tasks/features"


@pytest.fixture(autouse=True)
def _on_each_store(replicas: Replicas) -> None:
    """Asked for by name, so that pytest runs each scenario once for each store."""


@scenario(f"{FEATURES}/processing.feature", "A task succeeds")
def test_a_task_succeeds() -> None:
    """Created, run, gone."""


@scenario(f"{FEATURES}/processing.feature", "One of its batch fails")
def test_one_of_a_batch_fails() -> None:
    """The others are done."""


@scenario(f"{FEATURES}/processing.feature", "A task that is not due yet")
def test_not_due_yet() -> None:
    """It waits."""


@scenario(f"{FEATURES}/failing.feature", "The vector store is down")
def test_a_failure_is_kept() -> None:
    """The error, the count, the time of the next attempt."""


@scenario(f"{FEATURES}/failing.feature", "The type is unknown")
def test_an_unknown_type_fails() -> None:
    """And stays."""


@scenario(f"{FEATURES}/retrying.feature", "Too early")
def test_not_before_the_delay() -> None:
    """No attempt in nine minutes."""


@scenario(f"{FEATURES}/retrying.feature", "The vector store is up again")
def test_retried_after_the_delay() -> None:
    """Processed again in ten minutes."""


@scenario(f"{FEATURES}/retrying.feature", "The vector store stays down")
def test_retried_without_end() -> None:
    """More often than a job of Windlass's default would be."""


@scenario(f"{FEATURES}/replicas.feature", "Three processors at once")
def test_replicas_share() -> None:
    """Each task once."""


@scenario(f"{FEATURES}/replicas.feature", "A named task exists once")
def test_a_named_task_exists_once() -> None:
    """However many ask for it."""


@scenario(f"{FEATURES}/replicas.feature", "A processor dies")
def test_a_processor_dies() -> None:
    """Another does its tasks, after the stale-claim timeout."""


@given(parsers.parse('a task "{type}" with the body'))
def a_task(replicas: Replicas, type: str, docstring: str) -> None:
    replicas.tasks.create(type, json.loads(docstring))


@given(parsers.re(r'tasks that delete (?P<groups>".*")'))
def tasks_that_delete(replicas: Replicas, groups: str) -> None:
    for group in re.findall('"(.*?)"', groups):
        replicas.service.evict(group)


@given(parsers.parse("{count:d} tasks that delete a conversation each"))
def many_tasks(replicas: Replicas, count: int) -> None:
    for number in range(count):
        replicas.service.evict(f"conversation {number}")


@given(parsers.parse('a task that deletes "{group}" in an hour'))
def a_later_task(replicas: Replicas, group: str) -> None:
    replicas.tasks.create("vector_store_delete", {"group": group}, delay="1h")


@given(parsers.parse('the vector store is down for "{group}"'))
def down(replicas: Replicas, group: str) -> None:
    replicas.vectors.fail_for(group)


@when("the vector store is up again")
def up(replicas: Replicas) -> None:
    replicas.vectors.recover()


@given("a processor has run")
@when("a processor runs")
def run(replicas: Replicas) -> None:
    replicas.processor().run_once()


@given("a processor has claimed them and died")
def claim_and_die(replicas: Replicas) -> None:
    timeout = Settings().stale_claim_timeout
    assert len(replicas.new_app().claim(100, queues=[QUEUE], lease=timeout)) == 2


@when("processors have found what the dead one held")
def find_and_run(replicas: Replicas) -> None:
    replicas.processor().run_once()
    replicas.pass_time(seconds=2)  # over which Windlass spreads what it has rescued
    replicas.processor().run_once()


@when(parsers.parse("{minutes:d} minutes pass"))
def pass_time(replicas: Replicas, minutes: int) -> None:
    replicas.pass_time(minutes=minutes)


@when(parsers.parse("processors run every {minutes:d} minutes, {times:d} times"))
def run_often(replicas: Replicas, minutes: int, times: int) -> None:
    for _ in range(times):
        replicas.pass_time(minutes=minutes)
        assert replicas.processor().run_once() == 1


@when(parsers.parse("{count:d} processors run at once"))
def run_at_once(replicas: Replicas, count: int) -> None:
    processors = [replicas.processor(replicas.new_app(), batch_size=10) for _ in range(count)]

    def work(number: int) -> None:
        while processors[number].run_once():
            pass

    threads = [threading.Thread(target=work, args=[number]) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@when(parsers.parse('{count:d} entries are remembered in "{group}"'))
def remember(replicas: Replicas, count: int, group: str) -> None:
    for number in range(count):
        replicas.service.remember(group, f"note {number}")


@then(parsers.parse('the vector store was asked once to delete "{group}"'))
def deleted_once(replicas: Replicas, group: str) -> None:
    assert replicas.vectors.deletions.count(group) == 1


@then("the vector store was asked for nothing")
def nothing_deleted(replicas: Replicas) -> None:
    assert replicas.vectors.deletions == []


@then(parsers.parse("each of the {count:d} conversations was deleted once"))
def each_deleted_once(replicas: Replicas, count: int) -> None:
    assert Counter(replicas.vectors.deletions) == {f"conversation {number}": 1 for number in range(count)}


@then("there are no tasks")
def none_left(replicas: Replicas) -> None:
    assert replicas.tasks.counts().total() == 0
    assert list(replicas.app.list()) == []


@then(
    parsers.re(
        r"(?P<count>\d+) tasks? (is|are) left",
    ),
    converters={"count": int},
)
def some_left(replicas: Replicas, count: int) -> None:
    assert replicas.tasks.counts().total() == len(list(replicas.tasks.waiting())) == count


@then(parsers.parse("it is due in {minutes:d} minutes"))
def due(replicas: Replicas, minutes: int) -> None:
    # The clock runs while the task does, so a little more than the delay lies between claim and next attempt.
    late = replicas.due_in(replicas.the_task) - timedelta(minutes=minutes)
    assert timedelta() <= late < timedelta(minutes=1)


@then(parsers.parse('its error says "{text}"'))
def error_says(replicas: Replicas, text: str) -> None:
    error = replicas.the_task.error
    assert error is not None
    assert text in error.message


@then(parsers.re(r"it has failed (?P<count>\d+) times?"), converters={"count": int})
def failed(replicas: Replicas, count: int) -> None:
    task = replicas.the_task
    assert (task.state, task.attempt) == ("pending", count)


@then(parsers.parse('it is named "{name}"'))
def named(replicas: Replicas, name: str) -> None:
    assert replicas.tasks.find(name) == replicas.the_task

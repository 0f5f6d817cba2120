"""`retry_on` and `fail_on`: by exception type."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from windlass import Attempt, Fail, InvalidInput, Job, Retry, Snooze, Windlass
from windlass.outcome import LeaseExpired
from windlass.retrying import retry_rules
from windlass.worker.endings import TimedOut
from windlass.worker.processes import ProcessDied

from . import children

pytestmark = pytest.mark.one_store  # nothing here depends on which


class Temporary(OSError):
    pass


def run(app: Windlass, error: BaseException, **options: Any) -> Job:
    """A job whose handler ends so when it is first called; called again, it completes."""
    errors = [error]

    @app.task(f"task{len(app.tasks)}", backoff=0, max_attempts=3, **options)
    async def task() -> str:
        if errors:
            raise errors.pop()
        return "second"

    job = task.enqueue()
    app.run_worker(until_idle=True)
    return job.refresh()


def test_only_what_retry_on_names_is_retried(app: Windlass) -> None:
    named = run(app, Temporary("later"), retry_on=(OSError,))
    other = run(app, ValueError("never"), retry_on=(OSError,))
    assert (named.state, named.attempt) == ("completed", 2)
    assert (other.state, other.attempt) == ("failed", 1)
    assert other.error is not None
    assert "never" in other.error


def test_what_fail_on_names_is_not_retried(app: Windlass) -> None:
    named = run(app, Temporary("no use"), fail_on=OSError)
    other = run(app, ValueError("perhaps"), fail_on=OSError)
    assert (named.state, named.attempt) == ("failed", 1)
    assert (other.state, other.attempt) == ("completed", 2)


def test_fail_on_goes_before_retry_on(app: Windlass) -> None:
    states = [run(app, error, retry_on=(OSError,), fail_on=(Temporary,)).state for error in (Temporary(), OSError())]
    assert states == ["failed", "completed"]


@pytest.mark.parametrize("outcome", [Retry("again", after=0), Snooze("later", after=0)])
def test_what_the_handler_says_itself_holds(app: Windlass, outcome: Exception) -> None:
    assert run(app, outcome, retry_on=(), fail_on=(Exception,)).state == "completed"


def test_a_timeout_says_nothing_of_the_work_unless_it_is_named(app: Windlass) -> None:
    async def slow(attempt: Attempt) -> str:
        if attempt.number == 1:
            await asyncio.sleep(60)
        return "second"

    options: dict[str, Any] = {"timeout": 0.1, "backoff": 0}
    retried = app.task("retried", retry_on=(OSError,), **options)(slow).enqueue()
    failed = app.task("failed", fail_on=(TimeoutError,), **options)(slow).enqueue()
    app.run_worker(until_idle=True)
    assert (retried.refresh().state, failed.refresh().state) == ("completed", "failed")


def test_in_a_child_process_the_type_counts_as_well(app: Windlass) -> None:
    picky = app.task(isolation="process", backoff=0, max_attempts=2)(children.picky.function)
    failed, retried = picky.enqueue("ValueError"), picky.enqueue("OSError")
    app.run_worker(until_idle=True, concurrency=2)
    assert [(job.state, job.attempt) for job in (failed.refresh(), retried.refresh())] == [("failed", 1), ("failed", 2)]


def test_a_rescued_job_is_retried_whatever_its_task_says(app: Windlass) -> None:
    @app.task(retry_on=(), backoff=0)
    def task() -> str:
        return "done"

    job = task.enqueue()
    app.claim(lease=0.05)
    while job.refresh().state == "running":
        app.rescue()
    job.run_now()  # rescued jobs do not all come at the same moment
    app.run_worker(until_idle=True)
    assert job.result(20) == "done"


def test_what_befalls_an_attempt_from_outside_is_retried() -> None:
    rules = retry_rules(OSError, ())
    assert all(
        rules.allow(error) for error in (TimedOut(), ProcessDied(), LeaseExpired(), Fail(), asyncio.CancelledError())
    )
    assert not retry_rules(None, (ProcessDied,)).allow(ProcessDied())


@pytest.mark.parametrize("wrong", ["OSError", (OSError, 3), int, [OSError()], ("OSError",)])
@pytest.mark.parametrize("name", ["retry_on", "fail_on"])
def test_a_value_that_is_no_exception_type_is_refused(name: str, wrong: Any) -> None:
    with pytest.raises(InvalidInput, match=f"{name} names exception types"):
        Windlass("sqlite://").task(**{name: wrong})


def test_one_type_in_both_is_refused() -> None:
    with pytest.raises(InvalidInput, match="OSError is in retry_on and in fail_on"):
        Windlass("sqlite://").task(retry_on=(OSError, ValueError), fail_on=OSError)

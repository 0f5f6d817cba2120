"""`isolation="process"`: a handler ends in a child as it ends in a thread, whatever it raises, returns or reports."""

from __future__ import annotations

from typing import Any

import pytest

from windlass import Job, Task, Windlass

from . import children, isolated


def twins(app: Windlass, task: Task[..., Any], **options: Any) -> tuple[Task[..., Any], Task[..., Any]]:
    """The same function as a task in a thread and as one in a child."""
    in_thread = app.task("in_thread", **options)(task.function)
    return in_thread, app.task("in_child", isolation="process", **options)(task.function)


def run(app: Windlass, *jobs: Job) -> list[Job]:
    app.run_worker(until_idle=True, concurrency=1)
    return [job.refresh() for job in jobs]


def record(job: Job) -> tuple[Any, ...]:
    """The parts of a job that the end of its handler decides."""
    errors = [job.error, *(one.error for one in job.attempts)]
    return job.state, job.attempt, [(error.type, error.message) for error in errors if error is not None]


def between_two(app: Windlass, job: Job) -> Job:
    """The job after its run, between two others that show that the child survives it."""
    which = app.task(isolation="process", max_attempts=1)(children.which.function)
    before, after = which.using(priority=1).enqueue(), which.using(priority=-1).enqueue()
    before, job, after = run(app, before, job, after)
    assert before.output == after.output
    return job


@pytest.mark.one_store
def test_subclasses_of_the_outcomes_mean_in_a_child_what_they_mean_in_a_thread(app: Windlass) -> None:
    in_thread, in_child = twins(app, isolated.ends, max_attempts=3, backoff="1h", fail_on=(Exception,))
    pairs = {how: (in_thread.enqueue(how), in_child.enqueue(how)) for how in isolated.ENDS}
    run(app)
    for how, (first, second) in pairs.items():
        expected, found = first.refresh(), second.refresh()
        assert record(found) == record(expected), how
        if expected.state == "pending":
            assert abs((found.run_at - expected.run_at).total_seconds()) < 60, how
        if expected.error is not None:
            assert found.error is not None
            assert "isolated.py" in str(found.error.traceback), "the traceback is that of the handler"
    states = {how: first.refresh().state for how, (first, _) in pairs.items()}
    assert states["Gone"] == states["Missing"] == "failed"
    assert states["Unneeded"] == "cancelled"
    assert states["Busy"] == states["Unwilling"] == states["Closed"] == "pending"


@pytest.mark.one_store
def test_an_error_that_cannot_be_looked_at_is_the_end_of_its_attempt_alone(app: Windlass) -> None:
    in_child = app.task(isolation="process", max_attempts=1)(isolated.hidden.function)
    job = between_two(app, in_child.enqueue())
    assert job.state == "failed"
    assert job.error is not None
    assert job.error.type == "Hidden"


def test_a_child_continues_its_chain_with_a_call_that_names_jobs(app: Windlass, store_url: str) -> None:
    @app.task
    def part(n: int) -> int:
        return n

    app.task(isolation="process")(isolated.joined.function)
    first = app.task(isolation="process", max_attempts=1)(isolated.continues_after.function)
    (job,) = run(app, first.enqueue(store_url))
    assert job.result(20) == [7]
    (following,) = app.list(type="joined")
    assert (following.labels, following.expires_at) == ({"kind": "odd"}, isolated.LATER)


@pytest.mark.one_store
def test_a_call_that_cannot_be_sent_is_an_error_of_the_attempt_and_the_child_lives(app: Windlass) -> None:
    in_child = app.task(isolation="process", max_attempts=1)(isolated.continues_in_odd_queue.function)
    job = between_two(app, in_child.enqueue())
    assert job.state == "failed"
    assert job.error is not None
    assert job.error.type == "InvalidInput"
    assert "cannot be sent" in job.error.message
    assert "Can't pickle" in job.error.message


def test_a_settlement_with_an_odd_timezone_ends_no_child(app: Windlass, store_url: str) -> None:
    in_child = app.task(isolation="process", max_attempts=2)(isolated.settles_oddly.function)
    job = between_two(app, in_child.enqueue(store_url))
    assert (job.state, job.run_at) == ("pending", isolated.LATER)
    assert [one.error.message for one in job.attempts if one.error] == ["later"]
    assert (job.notes.fraction, job.notes.text) == (0.75, "almost")


@pytest.mark.one_store
def test_reports_of_a_child_are_converted_and_refused_as_in_a_thread(app: Windlass) -> None:
    in_thread, in_child = twins(app, isolated.reports, max_attempts=1)
    expected, found = run(app, in_thread.enqueue(), in_child.enqueue())
    assert (found.state, found.output) == (expected.state, expected.output)
    assert found.output == "ValueError, TypeError, TypeError"
    assert [line.text for line in found.notes.log] == [line.text for line in expected.notes.log] == ["404 at here"]
    assert (found.notes.fraction, found.notes.text) == (expected.notes.fraction, expected.notes.text)

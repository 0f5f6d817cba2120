"""`Windlass(…, defaults=Defaults(…))`: for tasks that do not say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from windlass import Defaults, Fixed, InvalidInput, Tasks, Windlass
from windlass.policy import FOR_EVER, Policy


def test_a_task_that_says_nothing_has_the_apps_defaults(new_app: Callable[..., Windlass]) -> None:
    app = new_app(defaults=Defaults(lease="5m", backoff="7s", max_attempts=3, keep="1h"))

    @app.task
    def silent() -> None: ...

    @app.task(max_attempts=9)
    def says_one() -> None: ...

    job, other = silent.enqueue(), says_one.enqueue()
    expected = Policy(max_attempts=3, lease_seconds=300.0, backoff=Fixed(7), keep_seconds=3600)
    assert job.policy == expected
    assert other.max_attempts == 9
    assert other.policy is not None
    assert (other.policy.lease_seconds, other.policy.keep_seconds) == (300.0, 3600)
    assert silent.using(lease=10).enqueue().policy == Policy(
        max_attempts=3, lease_seconds=10.0, backoff=Fixed(7), keep_seconds=3600
    )


def test_tasks_that_an_app_includes_have_its_defaults(new_app: Callable[..., Windlass]) -> None:
    tasks = Tasks()

    @tasks.task
    def silent() -> None: ...

    app = new_app(defaults=Defaults(max_attempts=None, keep=None))
    app.include(tasks)
    job = silent.enqueue()
    assert job.max_attempts is None
    assert job.policy == Policy(max_attempts=0, keep_seconds=FOR_EVER)


def test_a_job_of_an_unknown_task_is_treated_by_the_defaults_of_the_app_that_claims_it(
    new_app: Callable[..., Windlass],
) -> None:
    sender, claimer = new_app(), new_app(defaults=Defaults(max_attempts=1, lease=5))
    sender.enqueue("unknown", {})
    (attempt,) = claimer.claim(lease=None)
    assert attempt.job.max_attempts == 1
    assert attempt.lease.seconds == 5.0
    attempt.retry("once is enough")
    assert attempt.job.refresh().state == "failed"


def test_without_defaults_everything_is_as_it_was(app: Windlass) -> None:
    @app.task
    def silent() -> None: ...

    assert silent.policy == Policy()
    assert silent.policy.keep_seconds is None


@pytest.mark.parametrize(
    "wrong", [{"lease": 0}, {"max_attempts": 0}, {"backoff": "soon"}, {"keep": "x"}, {"lease": "never"}]
)
def test_wrong_defaults_are_refused_where_they_are_written(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        Defaults(**wrong)
    with pytest.raises(InvalidInput, match="defaults is a Defaults"):
        Windlass("sqlite://", defaults=wrong)  # type: ignore[arg-type]

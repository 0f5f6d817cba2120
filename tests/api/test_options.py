"""Options of a job by a caller that does not know its task: the task's own hold for the rest."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from windlass import Fixed, Windlass


def test_an_option_given_by_name_overrides_that_option_and_no_other(new_app: Callable[..., Windlass]) -> None:
    caller, worker = new_app(), new_app()

    @worker.task(lease=2, backoff="7s", timeout="30s", keep="2d", max_attempts=3)
    def slow(n: int) -> None: ...

    job = caller.enqueue("slow", {"n": 1}, max_attempts=10)
    (attempt,) = worker.claim(lease=None)
    policy = attempt.job.policy
    assert policy is not None
    assert (policy.max_attempts, policy.lease_seconds, policy.timeout_seconds) == (10, 2, 30)
    assert (policy.backoff, policy.keep_seconds) == (Fixed("7s"), 2 * 86_400)
    worker.store.clock.move(timedelta(seconds=1))
    assert worker.rescue() == 0
    worker.store.clock.move(timedelta(seconds=2))
    assert worker.rescue() == 1
    assert caller.require(job.id).attempt == 1


def test_of_a_task_that_the_caller_knows_as_well(new_app: Callable[..., Windlass]) -> None:
    app = new_app()

    @app.task(lease=2, backoff="7s", timeout="30s", keep="2d", max_attempts=3)
    def slow() -> None: ...

    for job in (slow.using(lease=9).enqueue(), app.enqueue("slow", lease=9)):
        assert job.policy is not None
        assert (job.policy.lease_seconds, job.policy.max_attempts, job.policy.timeout_seconds) == (9, 3, 30)
        assert (job.policy.backoff, job.policy.keep_seconds) == (Fixed("7s"), 2 * 86_400)

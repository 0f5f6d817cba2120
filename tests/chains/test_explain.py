"""`explain` of a job whose blocker is no longer kept."""

from __future__ import annotations

from datetime import timedelta

from windlass import Continue, Windlass


def test_a_blocker_that_failed_and_was_pruned(app: Windlass) -> None:
    @app.task(keep="1h", max_attempts=1)
    def fails() -> None:
        raise RuntimeError("broken")

    @app.task
    def task() -> None: ...

    blocker, other = fails.enqueue(), task.using(delay="100d").enqueue()
    dependent = task.using(after=[blocker, other]).enqueue()
    app.run_worker(until_idle=True)
    assert "never" not in app.explain(dependent.id)
    assert f"retry({str(blocker.id)!r}) brings it back" in app.explain(dependent.id)
    app.store.clock.move(timedelta(days=3))
    assert app.prune() == 1
    explained = app.explain(dependent.id)
    assert "waits for 2 of 2 chains" in explained
    assert f"blocked by {blocker.id}, which is no longer kept" in explained
    assert f"blocked by {other.id} (task), which is pending" in explained
    assert f"never start by itself: cancel({str(dependent.id)!r}) or delete({str(dependent.id)!r})" in explained
    app.cancel(dependent.id)
    assert app.get(dependent.id).state == "cancelled"  # type: ignore[union-attr]


def test_a_chain_whose_last_job_was_pruned(app: Windlass) -> None:
    @app.task(keep="1h", max_attempts=1)
    def fails() -> None:
        raise RuntimeError("broken")

    @app.task(keep="forever")
    def first() -> Continue:
        return Continue(fails.call())

    @app.task
    def task() -> None: ...

    blocker = first.enqueue()
    dependent = task.using(after=[blocker]).enqueue()
    app.run_worker(until_idle=True)
    app.store.clock.move(timedelta(days=3))
    assert app.prune() == 1
    assert f"blocked by {blocker.id}, which is no longer kept" in app.explain(dependent.id)
    assert "never start by itself" in app.explain(dependent.id)
    app.delete(dependent.id)
    assert app.get(dependent.id) is None

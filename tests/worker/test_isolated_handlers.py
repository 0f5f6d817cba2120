"""`isolation="process"`: the child has what a handler in the worker has."""

from __future__ import annotations

from pathlib import Path

from windlass import Windlass

from . import children


def test_a_child_is_given_what_its_job_waited_for(app: Windlass) -> None:
    joined = app.task(isolation="process")(children.joined.function)

    @app.task
    def part(n: int) -> int:
        return n

    parts = [part.enqueue(n) for n in range(3)]
    job = joined.using(after=parts).enqueue()
    app.run_worker(until_idle=True, concurrency=2)
    assert job.result(20) == [0, 1, 2]


def test_a_conflict_in_a_childs_block_spends_no_attempt(app: Windlass, tmp_path: Path) -> None:
    disturbed = app.task(isolation="process", max_attempts=1)(children.disturbed_once.function)
    job = disturbed.enqueue(str(tmp_path / "disturbed"))
    app.run_worker(until_idle=True, concurrency=2)
    assert job.result(20) == "done"

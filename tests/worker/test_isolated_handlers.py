"""`isolation="process"`: the child has what a handler in the worker has."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest

from windlass import Windlass
from windlass.worker.events import Event

from . import children
from .conftest import until


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


ENDS = {  # how the handler settles its job: the event that follows, and the worker's warning
    "fail": ("failed", None),
    "retry": ("retried", None),
    "block": ("completed", None),
    "complete": ("completed", None),
    "complete and return": ("completed", "what the handler returned is ignored"),
    "complete and raise": ("completed", "too late"),
}


async def test_a_handler_in_a_child_settles_its_job_itself(
    app: Windlass, store_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    settles = app.task(isolation="process")(children.settles_itself.function)
    events: dict[UUID, Event] = {}
    for name in ("completed", "failed", "retried"):
        app.on(name)(lambda event: events.update({event.id: event}))
    jobs = {how: await settles.aenqueue(store_url, how) for how in ENDS}
    async with app.worker(concurrency=1) as worker:
        await until(lambda: worker.completed + worker.failed + worker.retried == len(ENDS), 60)
    assert (worker.completed, worker.failed, worker.retried) == (4, 1, 1)
    for how, (event, warning) in ENDS.items():
        id = jobs[how].id
        assert events[id].name == event, how
        if event == "completed":
            assert (await jobs[how].arefresh()).output == "A"
            settlement = events[id].settlement
            assert settlement is not None
            assert settlement.output == '"A"'
        records = [record for record in caplog.records if str(id) in record.getMessage()]
        warnings = [record.getMessage() for record in records if record.levelname == "WARNING"]
        assert len(warnings) == (warning is not None), warnings
        assert warning is None or warning in warnings[0]

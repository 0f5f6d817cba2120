"""An idle worker asks little of its store."""

from __future__ import annotations

import pytest

from windlass import Windlass
from windlass.operation import Operation

from .conftest import until


@pytest.mark.one_store
async def test_those_that_run_jobs_prune_in_each_round_and_the_others_in_every_third(
    app: Windlass, monkeypatch: pytest.MonkeyPatch
) -> None:
    prunes: list[int] = []
    prune = app.store.prune

    def noted(limit: int) -> Operation[int]:
        prunes.append(limit)
        return prune(limit)

    monkeypatch.setattr(app.store, "prune", noted)

    @app.task
    async def work() -> None: ...

    async with app.worker() as worker:
        await until(lambda: worker.has_parts)
        for _ in range(9):
            await worker.maintenance.prune()
        assert len(prunes) == 3
        for number in range(1, 5):
            await app.aenqueue("work")
            await until(lambda: worker.completed == number)  # noqa: B023
            await worker.maintenance.prune()
        assert len(prunes) == 7

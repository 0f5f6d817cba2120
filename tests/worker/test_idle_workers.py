"""An idle worker asks little of its store."""

from __future__ import annotations

from collections import Counter

import pytest

from windlass import Windlass
from windlass.operation import Operation
from windlass.worker import maintenance

from .conftest import until


@pytest.mark.one_store
async def test_those_that_run_jobs_prune_in_each_round_and_the_others_in_every_third(
    app: Windlass, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "PRUNE_SECONDS", 0.05)
    rounds: list[str] = []
    prune, take_turn = app.store.prune, maintenance.Maintenance.prune

    async def counted(self: maintenance.Maintenance) -> None:
        rounds.append("round")
        await take_turn(self)

    def noted(limit: int) -> Operation[int]:
        rounds.append("prune")
        return prune(limit)

    monkeypatch.setattr(maintenance.Maintenance, "prune", counted)
    monkeypatch.setattr(app.store, "prune", noted)

    @app.task
    async def work() -> None: ...

    async with app.worker() as worker:
        await until(lambda: Counter(rounds)["round"] >= 9)
        assert Counter(rounds)["prune"] <= Counter(rounds)["round"] // 3
        for number in range(1, 7):
            before = Counter(rounds)["prune"]
            await app.aenqueue("work")
            await until(lambda: worker.completed == number)  # noqa: B023
            await until(lambda: Counter(rounds)["prune"] > before)  # noqa: B023
            seen = Counter(rounds)["round"]
            await until(lambda: Counter(rounds)["round"] > seen)  # noqa: B023
        assert Counter(rounds[-12:])["prune"] >= 4, rounds

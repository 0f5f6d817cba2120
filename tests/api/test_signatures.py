"""What an editor shows: the parameters by their names, also where the worker is imported only when it is needed."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest

import windlass
from tests.api.program import run
from windlass import InvalidInput, Windlass, Worker

LOADED = "import sys, windlass; print('windlass.worker.worker' in sys.modules, windlass.Worker.__name__)"


def parameters(function: Any) -> dict[str, tuple[Any, Any]]:
    found = inspect.signature(function).parameters.values()
    return {one.name: (one.kind, one.default) for one in found if one.name not in ("self", "app")}


def test_every_exported_name_is_there() -> None:
    assert all(hasattr(windlass, name) for name in windlass.__all__)
    assert "Worker" in windlass.__all__
    with pytest.raises(AttributeError, match="Nobody"):
        windlass.Nobody  # type: ignore[attr-defined]  # noqa: B018


def test_the_worker_is_imported_when_it_is_asked_for(tmp_path: Path) -> None:
    assert run("-c", LOADED, folder=tmp_path).stdout == "False Worker\n"


def test_all_ways_to_a_worker_take_the_same() -> None:
    expected = parameters(Worker)
    assert list(expected)[:2] == ["queues", "concurrency"]
    for way in (Windlass.worker, Windlass.run_worker, Windlass.arun_worker):
        assert parameters(way) == expected


def test_both_claims_take_the_same() -> None:
    names = ["limit", "queues", "types", "order_key", "tenant", "lease", "worker"]
    assert list(parameters(Windlass.claim)) == names
    assert parameters(Windlass.claim) == parameters(Windlass.aclaim)


async def test_queues_and_concurrency_by_place(app: Windlass) -> None:
    worker = app.worker(["mail"], 3, grace="1m", max_jobs=7)
    assert isinstance(worker, Worker)
    assert (worker.queues, worker.concurrency, worker.grace_seconds, worker.max_jobs) == ({"mail": None}, 3, 60, 7)
    for queue in ("mail", "mail", "other"):
        await app.aenqueue("task", {}, queue=queue)
    app.task("task")(lambda: None)
    assert await app.arun_worker(["mail"], 1, until_idle=True) == 2
    with pytest.raises(InvalidInput, match="concurrency"):
        app.run_worker(["mail"], 0)
    with pytest.raises(TypeError, match="queue"):
        app.worker(queue="mail")  # type: ignore[call-arg]
    await app.aclose()


def test_run_worker_by_place(app: Windlass) -> None:
    app.task("task")(lambda: None)
    for queue in ("mail", "other"):
        app.enqueue("task", {}, queue=queue)
    assert app.run_worker({"mail": 1}, 1, until_idle=True, poll_interval="1s", rescue_interval=60) == 1

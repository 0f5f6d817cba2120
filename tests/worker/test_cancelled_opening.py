"""A worker that is cancelled while it opens: no thread, no listener and no entry in the list of workers stays."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from windlass import Windlass
from windlass.stores.wakeup import Listener


@pytest.mark.parametrize("moment", ["the schedules are read", "the heartbeat is written", "it is open"])
async def test_nothing_stays_of_a_worker_that_is_cancelled_as_it_opens(
    app: Windlass, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    worker = app.worker()
    make_parts = worker._make_parts

    async def then_cancelled(step: Any) -> None:
        await step()
        running.cancel()

    def prepared() -> None:
        make_parts()
        beat, schedules = worker.maintenance.beat, worker.scheduler.open
        if moment == "the schedules are read":
            monkeypatch.setattr(worker.scheduler, "open", lambda: then_cancelled(schedules))
        if moment == "the heartbeat is written":
            monkeypatch.setattr(worker.maintenance, "beat", lambda: then_cancelled(beat))

    listeners, listen = 0, app.store.wakeup.listen

    def counted(listener: Listener) -> Callable[[], None]:
        nonlocal listeners
        listeners += 1
        stop = listen(listener)

        def stopped() -> None:
            nonlocal listeners
            listeners -= 1
            stop()

        return stopped

    monkeypatch.setattr(app.store.wakeup, "listen", counted)
    monkeypatch.setattr(worker, "_make_parts", prepared)
    if moment == "it is open":
        opening = worker._open
        monkeypatch.setattr(worker, "_open", lambda: then_cancelled(opening))
    running = asyncio.create_task(worker.run())
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(running, 20)
    assert await app.aworkers() == []
    assert not worker.leases._thread.is_alive()
    listening = app.store.wakeup._listening.existing()  # type: ignore[attr-defined]
    assert listening is None or listening._listeners == []
    names = {task.get_name() for task in asyncio.all_tasks()}
    assert not [name for name in names if name.startswith("windlass")]


async def test_a_worker_that_is_stopped_while_it_opens_is_struck_off_the_list(
    app: Windlass, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = app.worker()
    make_parts = worker._make_parts

    def prepared() -> None:
        make_parts()
        beat = worker.maintenance.beat

        async def slowly() -> None:
            await beat()
            worker.stop()
            await asyncio.sleep(20)

        monkeypatch.setattr(worker.maintenance, "beat", slowly)

    monkeypatch.setattr(worker, "_make_parts", prepared)
    assert await asyncio.wait_for(worker.run(), 15) == 0
    assert await app.aworkers() == []

"""A task that is cancelled while it calls Windlass ends: no cancellation is lost in a driver."""

from __future__ import annotations

import asyncio
import random

import pytest

from windlass import Windlass
from windlass.results import Alarm

CANCELLED = 150  # times: in Python 3.11 some were lost on MongoDB


async def test_a_task_that_is_cancelled_while_it_enqueues_ends(app: Windlass) -> None:
    @app.task
    async def work() -> None: ...

    async def enqueue_for_ever() -> None:
        while True:
            await work.aenqueue()

    await work.aenqueue()
    for _ in range(CANCELLED):
        task = asyncio.create_task(enqueue_for_ever())
        await asyncio.sleep(random.random() * 0.01)
        task.cancel()
        done, _ = await asyncio.wait([task], timeout=10)
        assert done
        assert task.cancelled()


@pytest.mark.one_store
@pytest.mark.parametrize("steps", range(6))
async def test_a_wait_for_a_result_that_is_cancelled_as_it_is_woken_ends(steps: int) -> None:
    alarm = Alarm()

    async def wait() -> None:
        await alarm.asleep(10)
        await asyncio.sleep(10)

    task = asyncio.create_task(wait())
    await asyncio.sleep(0.01)
    alarm.ring()
    for _ in range(steps):
        await asyncio.sleep(0)
    task.cancel()
    done, _ = await asyncio.wait([task], timeout=5)
    assert done
    assert task.cancelled()

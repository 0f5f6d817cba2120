"""Claims of a worker that go wrong half-way."""

from __future__ import annotations

import asyncio
import time
from typing import Any
from uuid import UUID, uuid4

import pytest

from windlass import Windlass
from windlass.attempt import Attempt
from windlass.errors import StoreUnavailable
from windlass.stores.store import ClaimRequest
from windlass.worker.bell import ALWAYS, Bell
from windlass.worker.buffer import Buffer
from windlass.worker.claimer import Claimer
from windlass.worker.events import Events
from windlass.worker.leases import Leases
from windlass.worker.ledger import Ledger
from windlass.worker.pump import Pump
from windlass.worker.unanswered import Unanswered

from .conftest import until


@pytest.fixture
def app() -> Windlass:
    app = Windlass("sqlite://")

    @app.task(max_attempts=1)
    async def last() -> None: ...

    @app.task
    async def plain() -> None: ...

    return app


def _claimer(app: Windlass, slots: int = 4) -> Claimer:
    buffer, leases = Buffer(Ledger(slots), Bell()), Leases(app, lambda *_: None)
    return Claimer(app, buffer, leases, Events(app, "w"), "w", {"default": None})


async def _claim_without_an_answer(app: Windlass, claimer: Claimer, count: int) -> UUID:
    token = uuid4()
    request = ClaimRequest(
        queue="default", limit=count, token=token, worker="w", types=app.task_names, policies=app.policies
    )
    await app.arun_for_worker(lambda: app.store.claim(request))
    claimer.unanswered.append(Unanswered(token, "default", time.monotonic()))
    return token


async def test_jobs_of_an_unanswered_claim_are_kept_if_the_look_for_the_next_claim_fails(
    app: Windlass, monkeypatch: pytest.MonkeyPatch
) -> None:
    await app.aenqueue_many([app.call("plain")] * 4)
    claimer = _claimer(app)
    await _claim_without_an_answer(app, claimer, 2)
    second = await _claim_without_an_answer(app, claimer, 2)
    adopt = app.store.adopt

    def failing(token: UUID) -> Any:
        if token == second:
            raise StoreUnavailable("away")
        return adopt(token)

    monkeypatch.setattr(app.store, "adopt", failing)
    taken: list[Attempt] = []
    with pytest.raises(StoreUnavailable):
        await claimer.adopt(taken.extend)
    assert len(taken) == 2
    monkeypatch.undo()
    await claimer.adopt(taken.extend)
    assert len({attempt.job.id for attempt in taken}) == 4
    await app.aclose()


async def test_a_slot_that_waits_for_a_last_attempt_is_free_again_if_the_claim_fails(
    app: Windlass, monkeypatch: pytest.MonkeyPatch
) -> None:
    claimer = _claimer(app, slots=1)
    pump = Pump(claimer, claimer.bell, lambda _: None, poll_seconds=5, until_idle=False)
    claimer.cursor("default")
    claimer.kept.keep(time.monotonic())
    slot = asyncio.create_task(claimer.buffer.take())
    await asyncio.sleep(0)
    assert claimer.ledger.kept_slots == 1

    def fail(request: ClaimRequest) -> Any:
        raise StoreUnavailable("away")

    monkeypatch.setattr(app.store, "claim", fail)
    running = asyncio.create_task(pump.run())
    await until(lambda: claimer.ledger.kept_slots == 0)
    for task in (running, slot):
        task.cancel()
    await asyncio.wait([running, slot])
    await app.aclose()


async def test_a_slot_that_comes_free_after_the_round_is_kept_for_a_last_attempt(app: Windlass) -> None:
    """As it always does where attempts end in step with the rounds."""
    claimer = _claimer(app, slots=1)
    pump = Pump(claimer, claimer.bell, lambda _: None, poll_seconds=5, until_idle=False)
    busy = claimer.ledger.take("default", 1)[0]
    busy.start()
    claimer.ledger.ran(0.0001)  # attempts are short, so that jobs are prefetched
    claimer.ledger.look_for_last_at = time.monotonic() - 1
    await app.aenqueue_many([app.call("last"), *[app.call("plain")] * 4])
    await pump._act(claimer.bell.take())
    assert len(claimer.buffer) == 4
    busy.release()
    slot = asyncio.create_task(claimer.buffer.take())
    await asyncio.sleep(0)
    assert not slot.done()
    assert claimer.bell.has(ALWAYS), "the pump must not sleep on"
    await pump._act(claimer.bell.take())
    assert (await slot).job.type == "last"
    await app.aclose()


async def test_a_slot_that_is_kept_while_jobs_are_prefetched_gets_a_last_attempt_in_the_same_turn(
    app: Windlass, monkeypatch: pytest.MonkeyPatch
) -> None:
    claimer = _claimer(app, slots=1)
    busy = claimer.ledger.take("default", 1)[0]
    busy.start()
    claimer.ledger.ran(0.0001)  # attempts are short, so that jobs are prefetched
    await app.aenqueue_many([app.call("last"), *[app.call("plain")] * 4])
    claimer.cursor("default")
    claimer.kept.keep(time.monotonic())
    claim = claimer.claim
    handed: list[asyncio.Task[Attempt]] = []

    async def as_the_slot_comes_free(queue: str, limit: int, *, prefetch: bool, **options: Any) -> list[Attempt]:
        attempts = await claim(queue, limit, prefetch=prefetch, **options)
        if prefetch:
            busy.release()
            handed.append(asyncio.create_task(claimer.buffer.take()))
            await asyncio.sleep(0)
        return attempts

    monkeypatch.setattr(claimer, "claim", as_the_slot_comes_free)
    await claimer.fill(["default"])
    assert (await handed[0]).job.type == "last"
    await app.aclose()


def test_a_worker_with_one_slot_runs_last_attempts_and_others(app: Windlass) -> None:
    app.enqueue_many([app.call("plain" if n % 3 else "last") for n in range(30)])
    assert app.run_worker(concurrency=1, until_idle=True) == 30
    assert app.counts()["completed"] == 30

"""The events of a worker: what each one carries, and that an event without a hook costs nothing."""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, NoReturn
from uuid import uuid4

import pytest

from windlass import Attempt, Continue, Fail, Retry, Snooze, Windlass
from windlass.events import EVENTS, BatchEvent, Event
from windlass.outcome import give_back
from windlass.worker import events, leases
from windlass.worker.events import Events

from .conftest import until

FAR = datetime(2100, 1, 1, tzinfo=UTC)


def listen(app: Windlass, *names: str) -> dict[str, list[Any]]:
    """The events of these names, or of all; complete once the worker has ended."""
    heard: dict[str, list[Any]] = defaultdict(list)
    for name in names or EVENTS:
        app.on(name)(lambda event: heard[event.name].append(event))
    return heard


async def run(app: Windlass, **options: Any) -> str:
    """Until no job is due: the name of the worker."""
    worker = app.worker(until_idle=True, **options)
    await worker.run()
    return worker.identity.name


async def test_job_events_carry_wait_duration_and_worker(app: Windlass) -> None:
    heard = listen(app)

    @app.task
    async def slow() -> None:
        await asyncio.sleep(0.05)

    now, later = await slow.aenqueue(), await slow.using(delay="30m").aenqueue()
    app.store.clock.move(timedelta(hours=1))
    name = await run(app)

    waits = {now.id: 3600, later.id: 1800}
    for event in (*heard["started"], *heard["completed"]):
        assert waits[event.id] - 1 < event.wait < waits[event.id] + 60
        assert event.worker == name
        assert event.job.type == "slow"
    assert [event.duration for event in heard["started"]] == [None, None]
    assert [event.settlement for event in heard["started"]] == [None, None]
    assert all(0.04 < event.duration < 20 for event in heard["completed"])
    assert {event.settlement.state for event in heard["completed"]} == {"completed"}
    app.close()
    assert {(event.wait, event.duration, event.worker) for event in heard["enqueued"]} == {(None, None, None)}
    assert {event.id for event in heard["enqueued"]} == set(waits)


async def test_every_end_of_an_attempt_has_its_duration(app: Windlass) -> None:
    heard = listen(app, "retried", "snoozed", "failed", "completed")

    @app.task
    async def ends(how: str, attempt: Attempt) -> None:
        await asyncio.sleep(0.02)
        if how == "settles":
            await attempt.acomplete()
            return
        raise {"retries": Retry(after="1h"), "snoozes": Snooze(after="1h"), "fails": Fail()}[how]

    jobs = {how: await ends.aenqueue(how) for how in ("retries", "snoozes", "fails", "settles")}
    await run(app)
    told = {name: [event.id for event in found] for name, found in heard.items()}
    assert told == {
        "retried": [jobs["retries"].id],
        "snoozed": [jobs["snoozes"].id],
        "failed": [jobs["fails"].id],
        "completed": [jobs["settles"].id],
    }
    assert all(0.01 < event.duration < 20 and event.wait >= 0 for found in heard.values() for event in found)


async def test_batch_events_count_claims_and_settlements(app: Windlass) -> None:
    heard = listen(app, "claimed", "settled")

    @app.task(queue="mail")
    async def quick(n: int) -> None: ...

    await app.aenqueue_many([quick.call(n) for n in range(200)])
    name = await run(app, concurrency=2)
    claims, batches = heard["claimed"], heard["settled"]
    assert sum(event.count for event in claims) == sum(event.count for event in batches) == 200
    assert {type(event) for event in claims + batches} == {BatchEvent}
    assert {event.worker for event in claims + batches} == {name}
    assert all(0 < event.seconds < 20 for event in claims + batches)
    assert {event.queue for event in claims} == {"mail"}
    assert {event.prefetch for event in claims} == {False, True}
    assert not claims[0].prefetch
    assert {(event.queue, event.prefetch, event.refused) for event in batches} == {(None, False, 0)}


async def test_a_chain_that_one_worker_continues_is_settled_job_by_job(app: Windlass) -> None:
    heard = listen(app, "settled", "completed", "started")

    @app.task
    async def count(n: int) -> Continue[int] | int:
        return Continue(count.call(n - 1)) if n else 0

    await count.aenqueue(5)
    await run(app)
    assert [(event.count, event.refused) for event in heard["settled"]] == [(1, 0)] * 6
    assert len(heard["completed"]) == len(heard["started"]) == 6
    assert all(event.wait is not None for event in heard["started"])


async def rescue(app: Windlass) -> None:
    """Take the running jobs from their worker."""
    async with asyncio.timeout(20):  # PostgreSQL passes over a row whose renewal is just being written
        while not await app.arescue(stale_before=FAR):  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def _return(attempt: Attempt) -> None:
    """The store refuses the outcome."""


async def _renew(attempt: Attempt) -> None:
    await attempt.arenew()


async def _sleep(attempt: Attempt) -> None:
    """Until the worker finds out, and interrupts the handler."""
    await asyncio.sleep(60)


@pytest.mark.parametrize("finds_out", [_return, _renew, _sleep])
async def test_a_lost_lease_is_an_event_of_its_job(
    app: Windlass, monkeypatch: pytest.MonkeyPatch, finds_out: Callable[[Attempt], Any]
) -> None:
    if finds_out is _sleep:
        monkeypatch.setattr(leases, "PART", 240)  # renewed four times a second
    heard = listen(app)

    @app.task(lease=60, backoff="1h")
    async def taken(attempt: Attempt) -> None:
        await rescue(app)
        await finds_out(attempt)

    job = await taken.aenqueue()
    async with app.worker() as worker:
        await until(lambda: heard["lease_lost"])
    (event,) = heard["lease_lost"]
    assert (event.id, event.job.type, event.settlement) == (job.id, "taken", None)
    assert event.worker == worker.identity.name
    assert event.wait >= 0
    assert event.duration > 0
    assert not any(heard[name] for name in ("completed", "failed", "retried", "snoozed", "rescued"))
    refusals = [(batch.count, batch.refused) for batch in heard["settled"]]
    assert refusals == ([(1, 1)] if finds_out is _return else [])


async def test_an_outcome_that_the_handler_wrote_itself_is_no_lost_lease(app: Windlass) -> None:
    heard = listen(app, "lease_lost", "completed")

    @app.task
    async def settles(attempt: Attempt) -> None:
        await attempt.acomplete("done")
        await asyncio.sleep(0.05)

    await settles.aenqueue()
    await run(app)
    assert {name: len(found) for name, found in heard.items()} == {"completed": 1}


# On SQLite alone


@pytest.fixture
def local(fresh_sqlite_url: str) -> Iterator[Windlass]:
    app = Windlass(fresh_sqlite_url)
    yield app
    app.close()


def test_a_job_that_is_given_back_before_its_start_has_no_duration(local: Windlass) -> None:
    heard = listen(local, "snoozed")
    local.enqueue("send", {}, queue="mail")
    (attempt,) = local.claim(queues=["mail"], types=["send"])
    told = Events(local, "me")
    told.ended(attempt, give_back(attempt.job, attempt.token))
    told.finish()
    (event,) = heard["snoozed"]
    assert (event.duration, event.worker) == (None, "me")
    assert event.wait is not None


async def test_an_event_without_a_hook_is_not_made(local: Windlass, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    def note(name: str, *fields: Any, **more: Any) -> Event:
        made.append(name)
        return Event(name, *fields, **more)

    def refuse(**fields: Any) -> NoReturn:
        raise AssertionError(fields["name"])

    heard = listen(local, "failed")
    monkeypatch.setattr(events, "Event", note)
    monkeypatch.setattr(events, "BatchEvent", refuse)

    @local.task
    async def work(well: bool) -> None:
        if not well:
            raise Fail

    await local.aenqueue_many([work.call(well) for well in (True, False, True)])
    await run(local)
    assert made == ["failed"]
    assert len(heard["failed"]) == 1
    assert (await local.acounts())["completed"] == 2


async def test_hooks_without_a_thread_cost_events_and_no_job(
    local: Windlass, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Unstartable(threading.Thread):
        def start(self) -> None:
            raise RuntimeError("can't start new thread")

    heard = listen(local)
    monkeypatch.setattr(events, "threading", SimpleNamespace(Thread=Unstartable, Lock=threading.Lock))

    @local.task
    async def work() -> str:
        return "done"

    job = await work.aenqueue()
    await run(local)
    assert await job.aresult(timeout=20) == "done"
    assert not heard
    for name in ("enqueued", "claimed", "started", "completed", "settled"):
        assert f"hooks for {name} were not called: can't start new thread" in caplog.text


def test_rescued_and_expired_have_no_job(local: Windlass) -> None:
    heard = listen(local, "rescued", "expired")
    settlement = SimpleNamespace(id=uuid4())
    told = Events(local, "me")
    told.rescued([settlement])  # type: ignore[list-item]
    told.expired([settlement])  # type: ignore[list-item]
    told.finish()
    for name in ("rescued", "expired"):
        (event,) = heard[name]
        assert (event.id, event.job, event.wait, event.duration, event.worker) == (
            settlement.id,
            None,
            None,
            None,
            "me",
        )

"""What handlers say of their progress is there while they run, however long their leases are."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from windlass import Attempt, Job, Windlass
from windlass.operation import Operation
from windlass.stores.store import Note

from .conftest import until
from .looking import look

SECONDS = 8.0  # for what takes about one; a lease's next renewal comes after two hundred


async def shows(app: Windlass, job: Job, fraction: float) -> None:
    async with asyncio.timeout(SECONDS):
        while (await look(app, job)).notes.fraction != fraction:  # noqa: ASYNC110, nobody tells
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_progress_shows_within_seconds_and_the_lease_stays_as_it_was(
    app: Windlass, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windlass.worker.leases.Leases.ask_all", lambda _: None)  # asking for news renews, too
    said, go_on = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    @app.task(lease=600, name="async")
    async def in_loop(attempt: Attempt) -> None:
        attempt.progress(0.25, "a quarter")
        attempt.log("begun")
        said.set()
        await go_on.wait()

    @app.task(lease=600, name="sync")
    def in_thread(attempt: Attempt) -> None:
        attempt.progress(0.25, "a quarter")
        attempt.log("begun")
        loop.call_soon_threadsafe(said.set)
        asyncio.run_coroutine_threadsafe(go_on.wait(), loop).result(60)

    job = await app.aenqueue(kind)
    async with app.worker(concurrency=2) as worker:
        await asyncio.wait_for(said.wait(), 20)
        try:
            leases = {(await look(app, job)).lease_expires_at}
            await shows(app, job, 0.25)
            found = await look(app, job)
            assert found.notes.text == "a quarter"
            assert [line.text for line in found.notes.log] == ["begun"]
            leases.add(found.lease_expires_at)
            (attempt,) = worker.running
            for fraction in (0.5, 0.75):
                attempt.progress(fraction)
                await shows(app, job, fraction)
                leases.add((await look(app, job)).lease_expires_at)
            assert len(leases) == 1
        finally:
            go_on.set()
        await until(lambda: worker.completed == 1)
    assert (await look(app, job)).notes.fraction == 0.75


async def test_all_are_written_together_and_silent_jobs_cost_nothing(app: Windlass) -> None:
    go_on, calls = asyncio.Event(), []

    @app.task(lease=60)
    async def work(attempt: Attempt, loud: bool) -> None:
        if loud:
            attempt.progress(0.1)
        await go_on.wait()

    note = app.store.note

    def noting(notes: Sequence[Note]) -> Operation[None]:
        calls.append(len(notes))
        return note(notes)

    app.store.note = noting  # type: ignore[method-assign]
    await app.aenqueue_many([work.call(n % 2 == 0) for n in range(20)])
    async with app.worker(concurrency=20) as worker:
        try:
            await until(lambda: len(worker.running) == 20 and sum(calls) >= 10)
            await asyncio.sleep(2.5)
        finally:
            go_on.set()
    assert sum(calls) == 10, "what was said once was written more than once"
    assert len(calls) <= 3


async def test_inside_a_block_nothing_is_written_that_would_collide_with_it(app: Windlass) -> None:
    runs = []

    @app.task(lease=60)
    async def work(attempt: Attempt) -> None:
        runs.append(1)
        async with attempt.transaction():
            for n in range(16):
                attempt.progress(n / 16)
                await asyncio.sleep(0.1)

    job = await work.aenqueue()
    async with app.worker(concurrency=1) as worker:
        await until(lambda: worker.completed == 1, 40)
    assert runs == [1]
    assert (await look(app, job)).notes.fraction == 15 / 16


async def test_progress_that_cannot_be_written_loses_no_lease(app: Windlass, caplog: pytest.LogCaptureFixture) -> None:
    tries = []

    def broken(notes: Sequence[Note]) -> Operation[None]:
        tries.append(len(notes))
        raise RuntimeError("no use")

    app.store.note = broken  # type: ignore[method-assign]

    @app.task(lease=1)
    async def work(attempt: Attempt) -> int:
        for n in range(25):
            attempt.progress(n / 25)
            await asyncio.sleep(0.1)
        return attempt.number

    job = await work.aenqueue()
    async with app.worker(concurrency=1, rescue_interval="200ms") as worker:
        await until(lambda: worker.completed == 1, 40)
    assert (await look(app, job)).output == 1
    assert tries
    assert "progress could not be written" in caplog.text

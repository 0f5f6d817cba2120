"""A transaction of the user's own that settles a job and takes its time to commit holds up nothing but that job.

On SQLite a transaction that writes has the whole file, so this is about the two servers.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar
from uuid import uuid4

import psycopg
import pytest
from pymongo import MongoClient

from windlass import Conflict, Windlass
from windlass.operation import Operation
from windlass.stores.store import ClaimRequest, Lease, Note, Refusal, Renewal

from .conftest import until

T = TypeVar("T")

SOON = 15.0  # seconds; a slow commit here takes until the test says so


@pytest.fixture(params=["postgres", "mongodb"])
def app(request: pytest.FixtureRequest) -> Iterator[Windlass]:
    app = Windlass(request.getfixturevalue(f"fresh_{request.param}_url"))
    app.migrate()
    yield app
    app.close()


class Own:
    """A transaction of the user's own."""

    def __init__(self, url: str) -> None:
        self.connection: Any
        if url.startswith("mongodb"):
            self._client: Any = MongoClient(url)
            self.connection = self._client.start_session()
            self.connection.start_transaction()
            self.commit = self.connection.commit_transaction
        else:
            self._client = self.connection = psycopg.connect(url)
            self.commit = self.connection.commit

    def close(self) -> None:
        self._client.close()


@contextmanager
def slow(app: Windlass) -> Iterator[Own]:
    own = Own(app.url)
    try:
        yield own
    finally:
        own.close()


def soon(function: Callable[[], T]) -> T:
    """What it returns, if that is soon; else the test fails, and does not wait for it."""
    pool = ThreadPoolExecutor(1)
    try:
        return pool.submit(function).result(SOON)
    finally:
        pool.shutdown(wait=False)


def test_other_leases_are_renewed_and_the_locked_one_is_not_lost(app: Windlass) -> None:
    for number in range(30):
        app.enqueue("work", {"number": number}, lease=60)
    attempts = app.claim(30, lease=60)
    ending, others = attempts[7], [*attempts[:7], *attempts[8:]]
    leases = [attempt.lease for attempt in attempts]
    before = ending.job.lease_expires_at
    with slow(app) as own:
        ending.complete("done", connection=own.connection)
        renewals = soon(lambda: app.run_operation(lambda: app.store.renew(leases)))
        by_id = {renewal.id: renewal for renewal in renewals}
        assert [renewal.id for renewal in renewals] == [attempt.job.id for attempt in attempts]
        for attempt in others:
            renewed = by_id[attempt.job.id]
            assert not renewed.locked
            assert renewed.expires_at is not None
            assert attempt.job.lease_expires_at is not None
            assert renewed.expires_at > attempt.job.lease_expires_at
        locked = by_id[ending.job.id]
        assert locked.locked
        assert locked.reason is None
        assert before is not None
        assert locked.expires_at is not None
        assert abs((locked.expires_at - before).total_seconds()) < 0.01
        own.commit()
    (after,) = app.run_operation(lambda: app.store.renew([ending.lease]))
    assert (after.expires_at, after.locked, after.reason) == (None, False, "already finished")


def in_slow_transaction(app: Windlass, own: Own, count: int = 5) -> tuple[Any, list[Any]]:
    """Attempts: one whose job the transaction has locked, and the others."""
    for _ in range(count):
        app.enqueue("work", lease=60, max_attempts=1)
    locked, *others = app.claim(count, lease=60)
    app.cancel(locked.job.id, connection=own.connection)
    return locked, others


def test_progress_of_the_others_is_written(app: Windlass) -> None:
    with slow(app) as own:
        locked, others = in_slow_transaction(app, own)
        notes = [Note(one.job.id, one.token, '{"fraction":0.5,"text":"","log":[]}') for one in (locked, *others)]
        soon(lambda: app.run_operation(lambda: app.store.note(notes)))
        assert [app.require(one.job.id).notes.fraction for one in others] == [0.5] * 4
        assert app.require(locked.job.id).notes.fraction is None
        own.commit()
    app.run_operation(lambda: app.store.note(notes))
    assert app.require(locked.job.id).notes.fraction == 0.5


def test_last_attempts_of_the_others_begin(app: Windlass) -> None:
    """Claimed as a worker does: they have not begun."""
    for _ in range(5):
        app.enqueue("work", lease=60, max_attempts=1)
    token = uuid4()
    request = ClaimRequest(queue="default", limit=5, token=token, worker="w", begun=False)
    jobs = app.run_operation(lambda: app.store.claim(request))
    leases = [Lease(job.id, token, 60) for job in jobs]
    with slow(app) as own:
        app.cancel(jobs[0].id, connection=own.connection)
        refusals = soon(lambda: app.run_operation(lambda: app.store.begin(leases)))
        assert refusals == [Refusal(jobs[0].id, "locked", token)]
        own.commit()
    assert app.run_operation(lambda: app.store.begin(leases)) == []


def test_renew_waits_for_a_short_lock(app: Windlass, monkeypatch: pytest.MonkeyPatch) -> None:
    tried, renew = threading.Event(), app.store.renew

    def renewing(leases: Sequence[Lease]) -> Operation[list[Renewal]]:
        renewals = yield from renew(leases)
        tried.set()
        return renewals

    monkeypatch.setattr(app.store, "renew", renewing)
    with slow(app) as own, ThreadPoolExecutor(1) as pool:
        locked, _ = in_slow_transaction(app, own)
        before = locked.lease_expires_at
        renewal = pool.submit(locked.renew)
        try:
            assert tried.wait(SOON)
        finally:
            own.commit()
        assert renewal.result(SOON) > before
        assert locked.cancel_requested
    assert app.require(locked.job.id).lease_expires_at == locked.lease_expires_at


def test_renew_says_that_a_lock_has_kept_it_from_renewing(app: Windlass, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("windlass.attempt.RENEW_SECONDS", 0.5)
    with slow(app) as own:
        locked, others = in_slow_transaction(app, own)
        before = locked.lease_expires_at
        with pytest.raises(Conflict, match="another transaction holds its row"):
            soon(locked.renew)
        assert locked.lease_expires_at == before
        for other in others:
            assert soon(other.renew) > before
        own.commit()
    assert locked.renew() > before


def test_a_supervisor_holds_the_leases_of_the_others(app: Windlass) -> None:
    for _ in range(3):
        app.enqueue("work", lease=60)
    attempts = app.claim(3, lease=60)
    with slow(app) as own:
        attempts[0].complete(connection=own.connection)
        assert soon(lambda: app.run_operation(lambda: app.store.hold([attempts[0].token]))) == 2
        own.commit()


def test_lost_jobs_beside_it_are_rescued(app: Windlass) -> None:
    for _ in range(3):
        app.enqueue("work")
    attempts = app.claim(3, lease=0.01)
    time.sleep(0.05)
    with slow(app) as own:
        attempts[1].complete(connection=own.connection)
        rescued = soon(lambda: app.run_operation(lambda: app.store.rescue(10)))
        assert {one.id for one in rescued} == {attempts[0].job.id, attempts[2].job.id}
        own.commit()
    assert app.require(attempts[1].job.id).state == "completed"


def running(app: Windlass, **options: Any) -> Any:
    app.enqueue("first", **options)
    (attempt,) = app.claim(1)
    return attempt


def test_the_next_of_its_order_key_waits_and_nothing_else_does(app: Windlass) -> None:
    first = running(app, order_key="k")
    with slow(app) as own:
        first.complete(connection=own.connection)
        following = soon(lambda: app.enqueue("next", order_key="k"))
        other = soon(lambda: app.enqueue("other", order_key="l"))
        plain = soon(lambda: app.enqueue("plain"))
        claimed = soon(lambda: app.claim(10))
        assert {attempt.job.id for attempt in claimed} == {other.id, plain.id}
        own.commit()
    (attempt,) = app.claim(10)
    assert attempt.job.id == following.id


def test_what_waits_for_it_waits_and_nothing_else_does(app: Windlass) -> None:
    first = running(app)
    second = running(app)
    with slow(app) as own:
        first.complete("out", connection=own.connection)
        waiting = soon(lambda: app.enqueue("next", after=[first.job]))
        both = soon(lambda: app.enqueue("both", after=[second.job, first.job]))
        other = soon(lambda: app.enqueue("other", after=[second.job]))
        second.complete("also")
        claimed = soon(lambda: app.claim(10))
        assert {attempt.job.id for attempt in claimed} == {other.id}
        own.commit()
    claimed = app.claim(10)
    assert {attempt.job.id for attempt in claimed} == {waiting.id, both.id}
    outputs = {attempt.job.type: list(attempt.blockers) for attempt in claimed}
    assert outputs == {"next": ["out"], "both": ["also", "out"]}


@pytest.mark.parametrize("option", ["order_key", "after"])
def test_many_that_wait_for_it_hold_up_no_other(app: Windlass, option: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """More than one look of an admission lists."""
    monkeypatch.setattr("windlass.sending.ADMITTED_AT_ONCE", 5)
    first = running(app, order_key="k")
    second = running(app)
    options: dict[str, Any] = {"order_key": "k"} if option == "order_key" else {"after": [first.job]}
    behind: dict[str, Any] = {"order_key": "l"} if option == "order_key" else {"after": [second.job]}
    with slow(app) as own:
        first.complete(connection=own.connection)
        second.complete()
        many = soon(lambda: app.enqueue_many([app.call("next", **options) for _ in range(12)]))
        other = soon(lambda: app.enqueue("other", **behind))
        claimed = soon(lambda: app.claim(10))
        assert {attempt.job.id for attempt in claimed} == {other.id}
        own.commit()
    left = {job.id for job in many}
    for _ in range(12 if option == "order_key" else 1):
        for attempt in app.claim(20):
            left.remove(attempt.job.id)
            attempt.complete()
    assert not left


def test_an_admission_that_takes_nothing_says_so(app: Windlass) -> None:
    first = running(app, order_key="k")
    with slow(app) as own:
        first.complete(connection=own.connection)
        app.enqueue("next", order_key="k")
        app.enqueue("after", after=[first.job])
        admitted = soon(lambda: app.run_operation(app._admit))
        assert (admitted.jobs, admitted.left) == (0, 2)
        own.commit()
    while app.run_operation(app._admit).jobs:
        pass
    assert app.run_operation(app._admit) == (0, [], 0)


@pytest.mark.parametrize("kind", ["order_key", "after"])
async def test_a_worker_continues_meanwhile_and_soon_takes_the_jobs_that_waited(app: Windlass, kind: str) -> None:
    """No poll, and no hint for that queue: it looks again by itself."""
    ran: list[str] = []

    @app.task
    async def note(text: str) -> None:
        ran.append(text)

    first = running(app, order_key="k")
    options: dict[str, Any] = {"order_key": "k"} if kind == "order_key" else {"after": [first.job]}
    with slow(app) as own:
        first.complete(connection=own.connection)
        async with app.worker(poll_interval=600):
            await note.using(queue="later", **options).aenqueue("next")
            for number in range(5):
                await note.aenqueue(f"plain {number}")
                await until(lambda number=number: f"plain {number}" in ran, SOON)  # type: ignore[misc]
            assert "next" not in ran
            await asyncio.to_thread(own.commit)
            await until(lambda: "next" in ran, SOON)


async def test_an_outcome_that_waits_for_it_holds_up_no_other(app: Windlass) -> None:
    """Two jobs that a third waits for: one ends in the slow transaction, the other in a worker."""

    @app.task(queue="apart")
    async def by_hand() -> None: ...

    @app.task(queue="worked")
    async def other() -> str:
        return "other"

    @app.task(queue="worked")
    async def last() -> str:
        return "last"

    @app.task(queue="worked")
    async def plain(number: int) -> int:
        return number

    held, beside = await by_hand.aenqueue(), await other.using(delay="1d").aenqueue()
    waiting = await last.using(after=[held, beside]).aenqueue()
    (attempt,) = await app.aclaim(1, queues=["apart"])
    with slow(app) as own:
        await asyncio.to_thread(lambda: attempt.complete("by hand", connection=own.connection))
        async with app.worker(["worked"]):
            await beside.arun_now()
            await asyncio.sleep(1.0)  # its outcome waits by now for the row, or document, of the third
            jobs = [await plain.aenqueue(number) for number in range(20)]
            assert await asyncio.wait_for(app.aresults(jobs), 20.0) == list(range(20))
            assert (await waiting.arefresh()).state == "blocked"
            await asyncio.to_thread(own.commit)
            assert await asyncio.wait_for(waiting.aresult(), 60.0) == "last"
    assert (await beside.arefresh()).state == "completed"


@pytest.mark.parametrize("limit", [1, 10])
def test_due_jobs_behind_one_that_it_has_cancelled_are_claimed(app: Windlass, limit: int) -> None:
    first = app.enqueue("work")
    others = [app.enqueue("work") for _ in range(3)]
    with slow(app) as own:
        app.cancel(first.id, connection=own.connection)
        claimed: list[Any] = []
        while len(claimed) < 3:
            some = soon(lambda: app.claim(limit))
            assert some
            claimed += some
        assert {attempt.job.id for attempt in claimed} == {job.id for job in others}
        own.commit()
    assert app.get(first.id).state == "cancelled"  # type: ignore[union-attr]


async def test_outcomes_of_jobs_that_it_has_locked_hold_up_no_other(app: Windlass) -> None:
    """More of them than a worker would take for a store that takes none."""
    go_on = asyncio.Event()

    @app.task
    async def held(number: int) -> int:
        await go_on.wait()
        return number

    @app.task
    async def plain(number: int) -> int:
        return number

    jobs = await app.aenqueue_many([held.call(number) for number in range(5)])
    async with app.worker(concurrency=10) as worker:
        await until(lambda: len(worker.running) == 5)
        with slow(app) as own:
            for job in jobs:
                await asyncio.to_thread(app.cancel, job.id, connection=own.connection)
            go_on.set()
            others = await app.aenqueue_many([plain.call(number) for number in range(20)])
            assert await asyncio.wait_for(app.aresults(others), 40.0) == list(range(20))
            await asyncio.to_thread(own.commit)
        for job in jobs:
            assert await asyncio.wait_for(job.aresult(), 60.0) == job.input["number"]

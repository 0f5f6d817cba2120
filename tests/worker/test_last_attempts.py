"""A job's last attempt counts when its handler is called: who never ran has not failed."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from tests.proxy import Proxy
from windlass import Attempt, Job, StoreUnavailable, Windlass
from windlass.operation import Operation, Sleep, Statement
from windlass.stores.sql.query import Query
from windlass.stores.store import ClaimRequest, Lease, Refusal
from windlass.worker.processes import CHILD_NAME

from . import children
from .conftest import until
from .looking import look

ROOT = Path(__file__).parents[2]


def start(url: str, started: Path, deadly: int = -1) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.worker.mortal", str(started), str(deadly)]
    return subprocess.Popen(command, cwd=ROOT, env=os.environ | {"WINDLASS_URL": url})


@pytest.mark.parametrize("kind", ["in_loop", "in_thread"])
@pytest.mark.parametrize("deadly", [0, 5])
def test_of_last_attempts_that_are_claimed_together_none_fails_that_was_not_started(
    app: Windlass, store_url: str, tmp_path: Path, kind: str, deadly: int
) -> None:
    """One of them ends the process at its first step. Those that were started before it may have failed with it."""
    jobs = [app.enqueue(kind, {"n": n}, max_attempts=1, lease=2) for n in range(12)]
    assert start(store_url, tmp_path / "first", deadly).wait(60) == 7, "it was to die of one of its jobs"
    started = {int(line) for line in (tmp_path / "first").read_text().split()}
    assert deadly in started
    left = [job for job in (app.get(job.id) for job in jobs) if job is not None and job.state == "running"]
    assert len(left) >= 12 - deadly, "they were not claimed together: this shows nothing"
    second = start(store_url, tmp_path / "second")
    try:
        deadline = time.monotonic() + 60
        while app.counts().completed + app.counts().failed < 12 and time.monotonic() < deadline:
            time.sleep(0.1)
    finally:
        second.terminate()
        second.wait(30)
    states = {n: app.get(job.id).state for n, job in enumerate(jobs)}  # type: ignore[union-attr]
    assert states[deadly] == "failed"
    assert {n: state for n, state in states.items() if n not in started} == dict.fromkeys(
        set(range(12)) - started, "completed"
    )
    again = {int(line) for line in (tmp_path / "second").read_text().split()}
    assert not again & started, "a last attempt that had begun was made twice"


async def test_a_last_attempt_whose_claim_was_not_answered_is_adopted_when_the_server_is_back(
    fresh_postgres_url: str,
) -> None:
    """The server has claimed, the answer is lost, and nobody can connect for three seconds."""
    parts = urlsplit(fresh_postgres_url)
    direct = Windlass(fresh_postgres_url)
    await direct.amigrate()
    with Proxy(str(parts.hostname), int(parts.port or 5432)) as proxy:
        app = Windlass(proxy.before(fresh_postgres_url))
        ran: list[int] = []

        @app.task(max_attempts=1, lease="4s")
        async def once(n: int) -> int:
            ran.append(n)
            return n

        claim = app.store.claim

        def losing(request: ClaimRequest) -> Operation[list[Job]]:
            jobs = yield from claim(request)
            if jobs and not proxy.refusing:
                proxy.refusing = True
                proxy.cut()
                yield from app.store.now()  # which never comes back
            return jobs

        app.store.claim = losing  # type: ignore[method-assign]
        worker = app.worker(concurrency=5, poll_interval="200ms", rescue_interval="500ms")
        running = asyncio.create_task(worker.run())
        await until(lambda: hasattr(worker, "pump") and worker.pump.turn.idle)
        jobs = await direct.aenqueue_many([once.call(n) for n in range(3)])
        await until(lambda: proxy.refusing)
        await asyncio.sleep(3)
        app.store.claim = claim  # type: ignore[method-assign]
        proxy.refusing = False
        await until(lambda: worker.completed == 3, 60)
        worker.stop()
        await running
        assert sorted(ran) == [0, 1, 2]
        found = [await look(direct, job) for job in jobs]
        assert [(job.state, job.attempt) for job in found] == [("completed", 1)] * 3
        await app.aclose()
    await direct.aclose()


async def test_a_claim_that_is_cut_short_by_the_end_of_the_worker_gives_its_jobs_back(
    app: Windlass, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGTERM while the answer takes longer than the pump is waited for."""
    claiming = asyncio.Event()
    arun = app.arun_for_worker

    async def slowly(make: Callable[[], Operation[Any]]) -> Any:
        answer = await arun(make)
        if isinstance(answer, list) and answer and hasattr(answer[0], "attempt") and not claiming.is_set():
            claiming.set()
            await asyncio.sleep(60)
        return answer

    @app.task(max_attempts=1)
    async def once(n: int) -> int:
        return n

    jobs = await app.aenqueue_many([once.call(n) for n in range(3)])
    monkeypatch.setattr(app, "arun_for_worker", slowly)
    worker = app.worker(concurrency=5, grace="1s")
    running = asyncio.create_task(worker.run())
    await asyncio.wait_for(claiming.wait(), 20)
    worker.stop()
    assert await asyncio.wait_for(running, 40) == 0
    found = [await look(app, job) for job in jobs]
    assert [(job.state, job.attempt) for job in found] == [("pending", 0)] * 3


async def test_a_last_attempt_that_has_begun_counts_when_its_worker_is_gone(app: Windlass) -> None:
    entered = asyncio.Event()

    @app.task(max_attempts=1, lease="1s")
    async def once() -> None:
        entered.set()
        await asyncio.sleep(60)

    job = await once.aenqueue()
    worker = app.worker(concurrency=1, rescue_interval="60s", grace="0s")
    running = asyncio.create_task(worker.run())
    await asyncio.wait_for(entered.wait(), 20)
    worker.leases._due.clear()  # as if the process were gone
    deadline = time.monotonic() + 30
    while not (rescued := await app.arun_operation(lambda: app.rescue_some(10))):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.1)
    assert [one.state for one in rescued] == ["failed"]
    worker.stop()
    await running
    assert (await look(app, job)).state == "failed"


async def test_a_claim_of_your_own_loop_counts_at_once(app: Windlass) -> None:
    @app.task(max_attempts=1)
    async def once() -> None: ...

    job = await once.aenqueue()
    (attempt,) = await app.aclaim(lease="1s")
    assert isinstance(attempt, Attempt)
    await asyncio.sleep(1.1)
    rescued = await app.arun_operation(lambda: app.rescue_some(10))
    assert [one.state for one in rescued] == ["failed"]
    assert (await look(app, job)).state == "failed"


async def test_a_last_attempt_that_another_transaction_holds_waits_alone(fresh_postgres_url: str) -> None:
    app = Windlass(fresh_postgres_url)
    await app.amigrate()
    claimed = asyncio.Event()
    begin = app.store.begin

    @app.task(max_attempts=1)
    async def once(n: int) -> int:
        return n

    jobs = await app.aenqueue_many([once.call(n) for n in range(5)])
    with psycopg.connect(fresh_postgres_url) as other:

        def locking(leases: Sequence[Lease]) -> Operation[list[Refusal]]:
            if not claimed.is_set():
                claimed.set()
                other.execute("SELECT FROM windlass_jobs WHERE id = %s FOR UPDATE", [jobs[0].id])
            return begin(leases)

        app.store.begin = locking  # type: ignore[method-assign]
        async with app.worker(concurrency=5) as worker:
            await until(lambda: worker.completed == 4)
            other.rollback()
            await until(lambda: worker.completed == 5)
    await app.aclose()


async def test_a_worker_that_stops_before_its_handler_is_called_gives_the_job_back(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store is slow to note the beginning, and the worker has no grace."""
    app = Windlass(store_url)
    ran: list[int] = []

    @app.task(max_attempts=1)
    async def pay() -> None:
        ran.append(1)

    job, run, asked = await pay.aenqueue(), app.arun_for_worker, asyncio.Event()

    async def late(make: Any) -> Any:
        if "begin" in make.__code__.co_names:
            asked.set()
            await asyncio.sleep(60)
        return await run(make)

    monkeypatch.setattr(app, "arun_for_worker", late)
    worker = app.worker(grace=0)
    running = asyncio.create_task(worker.run())
    await asyncio.wait_for(asked.wait(), 30)
    worker.stop()
    await asyncio.wait_for(running, 30)
    left = await job.arefresh()
    assert (ran, left.state, left.attempt) == ([], "pending", 0)
    await app.aclose()


async def test_a_beginning_that_gets_no_answer_does_not_hold_up_the_others_for_long(fresh_postgres_url: str) -> None:
    parts = urlsplit(fresh_postgres_url)
    with Proxy(str(parts.hostname), int(parts.port or 5432)) as proxy:
        app = Windlass(proxy.before(fresh_postgres_url))
        await app.amigrate()
        begin, silenced, ran = app.store.begin, list[int](), list[int]()

        def unanswered(leases: Sequence[Lease]) -> Operation[list[Refusal]]:
            if not silenced:
                yield Statement(Query("mark", "SELECT 'the line of the first one'"), alone=True)
                silenced.append(proxy.silence(lambda line: b"the line of the first one" in line.said))
            return (yield from begin(leases))

        app.store.begin = unanswered  # type: ignore[method-assign]

        @app.task(max_attempts=1)
        async def once(n: int) -> None:
            ran.append(n)

        await app.aenqueue_many([once.call(n) for n in range(5)])
        async with app.worker(concurrency=5) as worker:
            await until(lambda: worker.completed == 5, 15)
        assert (silenced, sorted(ran)) == ([1], [0, 1, 2, 3, 4])
        await app.aclose()


@pytest.mark.one_store
async def test_the_mark_is_made_inside_the_middleware(app: Windlass) -> None:
    """What a middleware does before the handler may take long: a worker that dies meanwhile has not begun the job."""
    marked, store = [], app.store
    begin = store.begin

    def marking(leases: Sequence[Lease]) -> Operation[list[Refusal]]:
        marked.append("marked")
        return (yield from begin(leases))

    store.begin = marking  # type: ignore[method-assign]

    @app.middleware
    async def slowly(attempt: Attempt, call: Callable[[], Any]) -> Any:
        marked.append("middleware")
        await asyncio.sleep(0.01)
        return await call()

    @app.task(max_attempts=1)
    async def once() -> None:
        marked.append("handler")

    await once.aenqueue()
    await app.arun_worker(until_idle=True)
    assert marked == ["middleware", "marked", "handler"]


async def test_a_time_limit_that_ends_before_the_store_has_answered_spends_no_attempt(
    app: Windlass, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran, begin, tries = list[int](), app.store.begin, list[int]()

    def away(leases: Sequence[Lease]) -> Operation[list[Refusal]]:
        tries.append(1)
        if len(tries) < 5:
            raise StoreUnavailable("away")
        return (yield from begin(leases))

    monkeypatch.setattr(app.store, "begin", away)

    @app.task(max_attempts=1, timeout="300ms")
    async def once() -> None:
        ran.append(1)

    job = await once.aenqueue()
    async with app.worker(poll_interval="200ms"):
        await until(lambda: ran)
    assert (await job.arefresh()).state == "completed"


@pytest.mark.one_store
def test_in_a_child_process_it_is_marked_when_the_child_is_ready(app: Windlass) -> None:
    """The child has to be started, and to import the application: that takes long, and nothing has begun."""
    which = app.task(isolation="process", max_attempts=1)(children.which.function)
    marked: list[bool] = []
    begin = app.store.begin

    def marking(leases: Sequence[Lease]) -> Operation[list[Refusal]]:
        marked.append(any(child.name == CHILD_NAME for child in multiprocessing.active_children()))
        return (yield from begin(leases))

    app.store.begin = marking  # type: ignore[method-assign]
    job = which.enqueue()
    app.run_worker(until_idle=True)
    assert (job.refresh().state, marked) == ("completed", [True])


@pytest.mark.one_store
async def test_the_wait_for_its_turn_is_not_part_of_its_timeout(app: Windlass, monkeypatch: pytest.MonkeyPatch) -> None:
    """Last attempts begin one after the other: where a commit takes long, the last of them waits long."""
    begin = app.store.begin

    def slowly(leases: Sequence[Lease]) -> Operation[list[Refusal]]:
        yield Sleep(0.02)
        return (yield from begin(leases))

    monkeypatch.setattr(app.store, "begin", slowly)

    @app.task(max_attempts=1, timeout="500ms")
    async def short(n: int) -> int:
        await asyncio.sleep(0.1)
        return n

    jobs = await app.aenqueue_many([short.call(n) for n in range(60)])
    await app.arun_worker(until_idle=True)
    assert await app.aresults(jobs, timeout=10) == list(range(60))


@pytest.mark.one_store
async def test_middleware_that_takes_too_long_spends_the_last_attempt(app: Windlass) -> None:
    rounds = []

    @app.middleware
    async def too_slow(attempt: Attempt, call: Callable[[], Any]) -> Any:
        rounds.append(1)
        await asyncio.sleep(5)
        return await call()

    @app.task(max_attempts=1, timeout="200ms")
    async def never() -> None: ...

    job = await never.aenqueue()
    await app.arun_worker(until_idle=True)
    assert (len(rounds), (await job.arefresh()).state) == (1, "failed")


@pytest.mark.one_store
async def test_middleware_that_calls_again_after_its_own_timeout(
    app: Windlass, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first call is given up while the mark is being written. Neither this job nor another one waits for ever."""
    begin, calls = app.store.begin, []

    def slow_at_first(leases: Sequence[Lease]) -> Operation[list[Refusal]]:
        calls.append(1)
        if len(calls) == 1:
            yield Sleep(1.0)
        return (yield from begin(leases))

    monkeypatch.setattr(app.store, "begin", slow_at_first)

    @app.middleware
    async def twice(attempt: Attempt, call: Callable[[], Any]) -> Any:
        try:
            async with asyncio.timeout(0.2):
                return await call()
        except TimeoutError:
            return await call()

    @app.task(max_attempts=1)
    async def once(n: int) -> int:
        return n

    jobs = await app.aenqueue_many([once.call(n) for n in range(3)])
    await asyncio.wait_for(app.arun_worker(until_idle=True), 20)
    assert await app.aresults(jobs, timeout=10) == [0, 1, 2]


@pytest.mark.one_store
@pytest.mark.parametrize("dies", ["while it imports", "before it is told to go"])
def test_a_child_that_is_killed_before_its_handler_is_called_spends_no_last_attempt(
    fresh_sqlite_url: str, monkeypatch: pytest.MonkeyPatch, dies: str
) -> None:
    app = Windlass(fresh_sqlite_url)
    app.migrate()
    which = app.task(isolation="process", max_attempts=1)(children.which.function)
    sent, killed = Connection.send, list[Any]()

    def send(pipe: Connection, message: Any) -> None:
        if dies == "before it is told to go" and message == "go" and not killed:
            kill()
        sent(pipe, message)
        if dies == "while it imports" and message != "go" and not killed:
            kill()

    def kill() -> None:
        for child in multiprocessing.active_children():
            killed.append(child.pid)
            child.kill()
            child.join()

    monkeypatch.setattr(Connection, "send", send)
    job = which.enqueue()
    app.run_worker(until_idle=True)
    assert (len(killed), job.refresh().state) == (1, "completed")
    app.close()


@pytest.mark.one_store
def test_a_job_that_ends_every_child_before_its_handler_is_called_fails(
    fresh_sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = Windlass(fresh_sqlite_url)
    app.migrate()
    which = app.task(isolation="process", max_attempts=1)(children.which.function)
    monkeypatch.setattr("windlass.worker.processes.serve", children.dies_with_its_job)
    job = which.enqueue()
    app.run_worker(until_idle=True)
    job = job.refresh()
    assert job.state == "failed"
    assert "ProcessDied" in str(job.error)
    app.close()


@pytest.mark.parametrize("released", [True, False])
async def test_a_claim_of_your_own_loop_hands_out_no_last_attempt_that_it_could_not_mark(
    app: Windlass, monkeypatch: pytest.MonkeyPatch, released: bool
) -> None:
    """A claimer that dies with it would let it run once more."""
    begin, looks = app.store.begin, list[int]()

    def locked(leases: Sequence[Lease]) -> Operation[list[Refusal]]:
        looks.append(1)
        if len(looks) < 3 or not released:
            return [Refusal(lease.id, "locked", lease.token) for lease in leases]
        return (yield from begin(leases))

    monkeypatch.setattr(app.store, "begin", locked)
    monkeypatch.setattr("windlass.claim.BEGIN_SECONDS", 0.3)

    @app.task(max_attempts=1)
    async def once() -> None: ...

    job = await once.aenqueue()
    claimed = await app.aclaim(1)
    assert [attempt.job.id for attempt in claimed] == ([job.id] if released else [])
    assert len(looks) >= 3

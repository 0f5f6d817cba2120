"""Chains, blockers and order keys as a user of tasks and workers meets them."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from windlass import (
    Attempt,
    Conflict,
    Continue,
    InvalidInput,
    JobCancelled,
    JobFailed,
    JobNotFound,
    Unique,
    Windlass,
)
from windlass.awaiting import Waiting
from windlass.stores.wakeup import Hint


def work(app: Windlass, **options: Any) -> None:
    app.run_worker(until_idle=True, **({"concurrency": 5} | options))


def test_chains_continue_branch_loop_and_go_back(app: Windlass) -> None:
    @app.task
    async def start(n: int) -> Continue:
        return Continue(odd.call(n) if n % 2 else even.call(n))

    @app.task
    def odd(n: int) -> Continue:
        return Continue(start.call(n + 1))

    @app.task
    def even(n: int) -> int | Continue:
        return Continue(even.call(n - 2)) if n > 10 else n

    jobs = [start.enqueue(3), start.enqueue(16)]
    work(app)
    assert [job.result() for job in jobs] == [4, 10]
    assert [job.type for job in reversed(app.list(chain=jobs[0].id))] == ["start", "odd", "start", "even"]
    assert [job.chain_index for job in reversed(app.list(chain=jobs[1].id))] == [0, 1, 2, 3, 4]


def test_one_continuation_for_a_completion(app: Windlass) -> None:
    @app.task
    def step(n: int) -> None: ...

    step.enqueue(1)
    (attempt,) = app.claim()
    attempt.complete(Continue(step.call(2)))
    with pytest.raises(Conflict, match="settled already"):
        attempt.complete(Continue(step.call(3)))
    assert app.counts()["pending"] == 1


def test_unblocking_uses_the_later_of_schedule_and_now(app: Windlass) -> None:
    @app.task
    def first() -> None: ...

    @app.task
    def second() -> None: ...

    blocker = first.enqueue()
    later = second.using(after=[blocker], delay="1h").enqueue()
    soon = second.using(after=[blocker]).enqueue()
    work(app)
    assert later.refresh().state == "pending"
    assert later.refresh().run_at > later.created_at + timedelta(minutes=59)
    assert soon.refresh().state == "completed"
    later.run_now()
    work(app)
    assert later.refresh().state == "completed"


def test_blockers_and_their_outputs(app: Windlass) -> None:
    @app.task
    async def number(n: int) -> int:
        return n * n

    @app.task
    async def add_up(attempt: Attempt, extra: int) -> list[int]:
        return [*attempt.blockers, extra]

    done = number.enqueue(1)
    work(app)
    jobs = [number.enqueue(n) for n in (2, 3)]
    total = add_up.using(after=[jobs[1], done, jobs[0].id]).enqueue(7)
    assert total.state == "blocked"
    work(app)
    assert total.result() == [9, 1, 4, 7]


def test_a_failed_blocker_holds_and_frees(app: Windlass) -> None:
    broken = True

    @app.task(max_attempts=1)
    async def shaky() -> str:
        if broken:
            raise RuntimeError("no")
        return "yes"

    @app.task
    async def then(attempt: Attempt) -> Any:
        return attempt.blockers

    blocker = shaky.enqueue()
    job = then.using(after=[blocker]).enqueue()
    work(app)
    assert job.refresh().state == "blocked"
    assert "has failed" in app.explain(job.id)
    broken = False
    blocker.retry()
    work(app)
    assert job.result() == ["yes"]


def test_workerless_completion(app: Windlass) -> None:
    @app.task(queue="people")
    async def approve(amount: int) -> bool:
        raise AssertionError("a person does this")

    @app.task
    async def pay(attempt: Attempt) -> str:
        return "paid" if attempt.blockers == [True] else "refused"

    approval = approve.enqueue(100)
    payment = pay.using(after=[approval]).enqueue()
    done = app.complete(approval.id, True)
    assert (done.state, done.output, done.worker) == ("completed", True, None)
    work(app, queues=["default"])
    assert payment.result() == "paid"
    with pytest.raises(Conflict, match="a completed job cannot be completed"):
        app.complete(approval.id, False)
    with pytest.raises(JobNotFound):
        app.complete(uuid4(), False)
    refused = approve.enqueue(5)
    app.fail(refused.id, "too much")
    with pytest.raises(JobFailed, match="too much"):
        refused.result()


async def test_a_worker_that_runs_it_learns_of_it(app: Windlass) -> None:
    started, ended = asyncio.Event(), asyncio.Event()

    @app.task
    async def endless() -> str:
        started.set()
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()
        return "by the worker"

    async with app.worker():
        job = await endless.aenqueue()
        await asyncio.wait_for(started.wait(), 10)
        await app.acomplete(job.id, "by hand")
        await asyncio.wait_for(ended.wait(), 10)
    assert (await job.arefresh()).output == "by hand"


def test_deleting(app: Windlass) -> None:
    @app.task
    def task() -> None: ...

    root = task.enqueue()
    left, right = (task.using(after=[root]).enqueue() for _ in range(2))
    last = task.using(after=[left, right]).enqueue()
    with pytest.raises(Conflict, match=f"job .*{'|'.join(str(one.id) for one in (left, right))}.* waits for it"):
        app.delete(root.id)
    assert app.counts().total == 4
    app.delete(last.id)
    assert app.delete_many(type="task") == 3
    assert app.counts().total == 0


def test_awaiting_many_with_a_timeout(app: Windlass) -> None:
    @app.task
    async def double(n: int) -> int:
        return 2 * n

    jobs = [double.enqueue(n) for n in range(5)]
    with pytest.raises(TimeoutError):
        app.results(jobs, timeout=0.1)
    work(app)
    assert app.results([job.id for job in jobs]) == [0, 2, 4, 6, 8]


async def test_awaiting_is_woken_by_a_hint_and_can_be_given_up(app: Windlass, monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    line_is_up, waits, ends = asyncio.Event(), asyncio.Event(), asyncio.Event()

    def hear(hint: Hint | None) -> None:
        loop.call_soon_threadsafe(line_is_up.set)

    def pause(waiting: Waiting) -> float:
        waits.set()
        return 3600.0  # the look that is the net comes too late for this test

    monkeypatch.setattr(Waiting, "pause", pause)

    @app.task
    async def wait() -> str:
        await ends.wait()
        return "done"

    await app.amigrate()
    deafen = app.store.wakeup.listen(hear)
    async with app.worker(), asyncio.timeout(60):
        await line_is_up.wait()  # which wakes those who wait, too
        job = await wait.aenqueue()
        given_up = asyncio.create_task(job.aresult())
        await waits.wait()
        given_up.cancel()
        with pytest.raises(asyncio.CancelledError):
            await given_up
        waits.clear()
        result = asyncio.create_task(job.aresult())
        await waits.wait()
        ends.set()
        assert await result == "done"
    deafen()


def test_awaiting_a_job_that_was_cancelled_or_is_gone(app: Windlass) -> None:
    @app.task
    def task() -> None: ...

    job = task.enqueue()
    job.cancel()
    with pytest.raises(JobCancelled):
        job.result()
    job.delete()
    with pytest.raises(JobNotFound):
        job.result()


def test_order_keys_with_retries_and_side_by_side(app: Windlass) -> None:
    ran: list[tuple[str, int]] = []

    @app.task(max_attempts=5, backoff=0.01)
    async def step(attempt: Attempt, key: str, n: int) -> None:
        if (n * 7 + attempt.number) % 5 == 0:
            raise RuntimeError("again")
        ran.append((key, n))

    for n in range(12):
        for key in ("a", "b", "c"):
            step.using(order_key=key).enqueue(key, n)
    deadline = time.monotonic() + 60
    while app.counts()["completed"] < 36 and time.monotonic() < deadline:
        work(app, concurrency=10)
        time.sleep(0.02)
    for key in ("a", "b", "c"):
        assert [n for one, n in ran if one == key] == list(range(12))


def test_bad_input_changes_nothing(app: Windlass) -> None:
    @app.task
    def task() -> None: ...

    one, two = uuid4(), uuid4()
    with pytest.raises(InvalidInput, match="wait for itself"):
        task.using(id=one, after=[one]).enqueue()
    with pytest.raises(InvalidInput, match="wait for each other"):
        app.enqueue_many([task.using(id=one, after=[two]).call(), task.using(id=two, after=[one]).call()])
    with pytest.raises(InvalidInput, match="10,001 jobs; 10,000 at the most"):
        task.using(after=[uuid4() for _ in range(10_001)]).enqueue()
    with pytest.raises(InvalidInput, match="list of jobs"):
        task.using(after="x").enqueue()
    with pytest.raises(JobNotFound, match="does not exist"):
        task.using(after=[uuid4()]).enqueue()
    with pytest.raises(InvalidInput, match="order_key"):
        task.using(order_key="").enqueue()
    with pytest.raises(InvalidInput, match="Continue takes a call"):
        Continue("x")  # type: ignore[call-overload]
    assert app.counts().total == 0


@pytest.mark.parametrize("fault", ["own chain", "unknown", "taken key", "kept key", "replaced key", "taken id"])
def test_a_chain_that_cannot_continue_fails_and_holds_up_no_other(app: Windlass, fault: str) -> None:
    @app.task
    def last() -> str:
        return "end"

    @app.task(max_attempts=1)
    def first(attempt: Attempt) -> Continue:
        dependent = last.using(after=[attempt.job], queue="other").enqueue()
        calls = {
            "own chain": last.using(after=[dependent]),
            "unknown": last.using(after=[uuid4()]),
            "taken key": last.using(unique=Unique("key", until="finished", on_conflict="raise")),
            "kept key": last.using(unique=Unique("key", until="finished")),
            "replaced key": last.using(unique=Unique("claimed", until="claimed", on_conflict="replace")),
            "taken id": last.using(id=taken.id),
        }
        return Continue(calls[fault].call())

    taken = last.using(unique=Unique("key", until="finished"), delay="1h").enqueue()
    last.using(unique=Unique("claimed"), delay="1h").enqueue()
    jobs = [first.enqueue(), last.enqueue()]
    app.run_worker(until_idle=True, queues=["default"])
    assert jobs[1].result() == "end"
    failed = jobs[0].refresh()
    assert failed.state == "failed"
    assert failed.error is not None
    names = {"own chain": "InvalidInput", "unknown": "JobNotFound"}
    assert failed.error.type == names.get(fault, "Conflict")
    assert len(list(app.list(chain=failed.id))) == 1


def test_explain(app: Windlass) -> None:
    @app.task(queue="mail")
    def task() -> None: ...

    blocker = task.enqueue()
    later = task.using(delay="1h").enqueue()
    blocked = task.using(after=[blocker]).enqueue()
    ordered = [task.using(order_key="k", priority=-1).enqueue() for _ in range(2)]
    assert "no worker is alive" in app.explain(blocker.id)
    assert "not due until" in app.explain(later.id)
    assert f"blocked by {blocker.id} (task), which is pending" in app.explain(blocked.id)
    assert f"behind job {ordered[0].id}" in app.explain(ordered[1].id)
    app.pause("mail")
    assert "queue 'mail' is paused" in app.explain(blocker.id)
    app.resume("mail")
    (attempt,) = app.claim(1, worker="me")
    assert "lease held by me until" in app.explain(attempt.job.id)
    attempt.fail("broken")
    assert "has failed" in app.explain(attempt.job.id)
    assert "broken" in app.explain(attempt.job.id)
    with pytest.raises(JobNotFound):
        app.explain(uuid4())

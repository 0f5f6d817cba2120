"""Enqueueing: by task, with options, as calls, by name."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest

from tests.api.either import Either
from tests.api.hearing import until_heard
from windlass import Conflict, Fixed, InvalidInput, Job, Unique, Windlass
from windlass.stores.wakeup import Hint

TOMORROW = datetime.now(UTC).replace(microsecond=0) + timedelta(days=1)


async def enqueue(either: Either, task, *args, **kwargs) -> Job:
    return await task.aenqueue(*args, **kwargs) if either.is_async else task.enqueue(*args, **kwargs)


async def test_a_task_makes_jobs_and_stays_callable(app: Windlass, either: Either) -> None:
    @app.task(queue="mail", priority=7, max_attempts=5, backoff="10m", timeout="30s", lease="2m", keep="1d")
    async def send(user_id: int, text: str = "hello") -> str:
        """Sends."""
        return f"{text} to {user_id}"

    @app.task
    def add(left: int, right: int) -> int:
        return left + right

    assert await send(1, text="bye") == "bye to 1"
    assert add(1, right=2) == 3
    assert (send.name, send.__doc__) == ("send", "Sends.")
    job = await enqueue(either, send, 42)
    assert isinstance(job.id, UUID)
    assert job.id.version == 7
    assert (job.type, job.queue, job.priority, job.state, job.input) == ("send", "mail", 7, "pending", {"user_id": 42})
    assert (job.attempt, job.max_attempts, job.created, job.chain_id) == (0, 5, True, job.id)
    assert job.policy is not None
    assert job.policy.backoff == Fixed("10m")
    assert (job.policy.timeout_seconds, job.policy.lease_seconds, job.policy.keep_seconds) == (30, 120, 86_400)
    found = await either.get(job.id)
    assert found == job
    assert found.policy == job.policy
    assert found.input == job.input
    assert found.created_at == job.created_at


async def test_using_changes_the_jobs_and_not_the_task(app: Windlass, either: Either) -> None:
    @app.task(queue="mail", max_attempts=5)
    def send(user_id: int) -> None: ...

    id = uuid4()
    options = {
        "id": id, "run_at": TOMORROW, "priority": 50, "queue": "urgent", "tenant": "acme", "labels": {"a": "b"},
        "max_attempts": None, "backoff": "1h", "timeout": timedelta(seconds=5), "keep": "forever", "expires": "2d",
    }  # fmt: skip
    await enqueue(either, send.using(**options).using(priority=51), 1)
    job = await either.get(id)
    assert (job.id, job.run_at, job.priority, job.queue, job.tenant) == (id, TOMORROW, 51, "urgent", "acme")
    assert (job.labels, job.max_attempts) == ({"a": "b"}, None)
    assert job.policy.timeout_seconds == 5
    assert job.policy.keep_seconds == -1
    assert timedelta(days=1.9) < job.expires_at - job.created_at < timedelta(days=2.1)
    plain = await enqueue(either, send, 2)
    assert (plain.queue, plain.priority, plain.max_attempts, plain.tenant) == ("mail", 0, 5, "")
    for delay in (timedelta(minutes=10), 600, "10m", "PT10M"):
        late = await enqueue(either, send.using(delay=delay), 3)
        assert late.run_at - late.created_at == timedelta(minutes=10)


async def test_unique_jobs(app: Windlass, either: Either) -> None:
    @app.task
    def report(month: str) -> None: ...

    first = await enqueue(either, report.using(unique="may"), "May")
    again = await enqueue(either, report.using(unique="may"), "May again")
    assert (again, again.created, again.input) == (first, False, {"month": "May"})
    assert (await enqueue(either, report.using(unique="may", tenant="acme"), "May")).created
    with pytest.raises(Conflict, match="may"):
        await enqueue(either, report.using(unique=Unique("may", on_conflict="raise")), "May")
    debounced = report.using(unique=Unique("june", until="claimed", on_conflict="replace"), delay="1m")
    first = await enqueue(either, debounced, "June")
    again = await enqueue(either, debounced, "late June")
    assert (again, again.created, again.input) == (first, False, {"month": "late June"})


async def test_many_calls_in_one_go(app: Windlass, either: Either) -> None:
    @app.task
    def count(number: int) -> None: ...

    calls = [count.using(priority=number % 3).call(number) for number in range(60)]
    assert repr(calls[0]) != ""
    assert (await either.counts()).total == 0
    jobs = await either.enqueue_many(calls)
    assert [job.input["number"] for job in jobs] == list(range(60))
    assert [job.priority for job in jobs[:4]] == [0, 1, 2, 0]
    assert len({job.id for job in jobs}) == 60
    assert (await either.counts()).pending == 60
    again = await either.enqueue_many(call for call in calls[:2])
    assert all(job.created for job in again)
    assert await either.enqueue_many([]) == []


async def test_an_id_that_is_sent_twice_is_one_job(app: Windlass, either: Either) -> None:
    @app.task
    def pay(amount: int) -> int:
        return amount

    once = pay.using(id=uuid4())
    first, second = await either.enqueue_many([once.call(1), once.call(1)])
    assert first == second
    assert (first.created, second.created) == (True, False)
    assert not (await enqueue(either, once, 1)).created
    assert await either.run_worker(until_idle=True) == 1
    assert not (await enqueue(either, once, 1)).created
    assert await either.run_worker(until_idle=True) == 0


async def test_by_name_with_a_task_it_is_as_if_by_the_task(app: Windlass, either: Either) -> None:
    @app.task(queue="mail", max_attempts=3)
    def send(user_id: int, text: str = "") -> None: ...

    job = await either.enqueue("send", {"user_id": 1}, priority=5)
    assert (job.queue, job.priority, job.max_attempts, job.input) == ("mail", 5, 3, {"user_id": 1})
    for wrong in ({"user_id": "one"}, {}, {"user_id": 1, "more": 2}):
        with pytest.raises(InvalidInput, match="send"):
            await either.enqueue("send", wrong)
    call = app.call("send", {"user_id": 2})
    assert [job.input for job in await either.enqueue_many([call])] == [{"user_id": 2}]


async def test_by_name_without_a_task_it_waits_for_who_knows_it(
    app: Windlass, either: Either, new_app: Callable[..., Windlass]
) -> None:
    job = await either.enqueue("elsewhere", {"user_id": 1}, queue="mail", tenant="acme")
    assert (job.type, job.queue, job.tenant, job.policy) == ("elsewhere", "mail", "acme", None)
    assert await either.run_worker(until_idle=True) == 0
    assert (await either.of(job).refresh()).state == "pending"
    knowing = new_app()

    @knowing.task(name="elsewhere", queue="other", max_attempts=2, backoff="1h", lease="5m")
    def handler(user_id: int) -> int:
        if user_id == 1:
            raise ValueError("not this one")
        return user_id

    assert await asyncio.to_thread(knowing.run_worker, until_idle=True) == 1
    tried = await either.of(job).refresh()
    assert (tried.state, tried.attempt, tried.max_attempts) == ("pending", 1, 2)
    assert timedelta(minutes=50) < tried.run_at - tried.created_at < timedelta(minutes=70)
    assert tried.policy.lease_seconds == 300


async def test_a_hint_goes_out_after_the_commit(app: Windlass, either: Either) -> None:
    heard: list[Hint | None] = []
    stop = app.store.wakeup.listen(heard.append)
    await until_heard(None, heard)  # that the line is up
    await either.enqueue("anything", {}, queue="mail")
    await until_heard(Hint("ready", "mail"), heard)
    stop()

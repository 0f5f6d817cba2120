"""Acting on one job, on all that match, and on queues."""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

import pytest

from tests.api.either import Either
from windlass import Conflict, InvalidInput, JobNotFound, Windlass


async def test_cancel(app: Windlass, either: Either) -> None:
    job = await either.enqueue("send", {})
    assert (await either.cancel(job.id)).state == "cancelled"
    assert (await either.of(job).cancel()).state == "cancelled"
    running = await either.enqueue("send", {})
    (attempt,) = await either.claim()
    asked = await either.cancel(str(running.id))
    assert (asked.state, asked.cancel_requested) == ("running", True)
    await either.of(attempt).renew()
    assert attempt.cancel_requested
    await either.of(attempt).complete()
    with pytest.raises(Conflict, match="completed"):
        await either.cancel(running.id)


async def test_cancel_what_leaves_no_trace(app: Windlass, either: Either) -> None:
    job = await either.enqueue("send", {"a": 1}, keep=0)
    cancelled = await either.cancel(job.id)
    assert (cancelled.state, cancelled.input) == ("cancelled", {"a": 1})
    assert await either.get(job.id) is None
    assert await either.claim() == []
    with pytest.raises(JobNotFound):
        await either.cancel(job.id)


async def test_retry(app: Windlass, either: Either) -> None:
    job = await either.enqueue("send", {"a": 1}, max_attempts=1)
    with pytest.raises(Conflict, match="run_now"):
        await either.retry(job.id)
    (attempt,) = await either.claim()
    await either.of(attempt).fail("no")
    back = await either.of(job).retry()
    assert (back.state, back.attempt, back.input) == ("pending", 0, {"a": 1})
    (attempt,) = await either.claim()
    await either.of(attempt).complete("yes")
    with pytest.raises(Conflict, match="done its work"):
        await either.retry(job.id)
    assert await either.of(job).result() == "yes"


async def test_run_now(app: Windlass, either: Either) -> None:
    job = await either.enqueue("send", {}, delay="1h")
    assert await either.claim() == []
    assert (await either.run_now(job.id)).run_at <= job.created_at + timedelta(minutes=1)
    (attempt,) = await either.claim()
    with pytest.raises(Conflict, match="running"):
        await either.of(job).run_now()
    assert attempt.job == job


async def test_delete(app: Windlass, either: Either) -> None:
    job = await either.enqueue("send", {}, unique="key")
    assert await either.delete(job.id) is None
    assert await either.get(job.id) is None
    again = await either.enqueue("send", {}, unique="key")
    assert again.created
    (attempt,) = await either.claim()
    with pytest.raises(Conflict, match="cancel it first"):
        await either.of(again).delete()
    await either.of(attempt).complete()
    await either.of(again).delete()
    assert (await either.counts()).total == 0


async def test_a_missing_one_is_reported(app: Windlass, either: Either) -> None:
    for act in (either.cancel, either.retry, either.run_now, either.delete):
        with pytest.raises(JobNotFound):
            await act(uuid4())
        with pytest.raises(InvalidInput):
            await act("no id")


async def test_many_at_once(app: Windlass, either: Either) -> None:
    await either.enqueue_many([app.call("send", {}, queue="mail", delay="1h") for _ in range(30)])
    await either.enqueue_many([app.call("send", {}, queue="other", delay="1h", tenant="acme") for _ in range(5)])
    assert await either.run_now_many(queue="mail") == 30
    attempts = await either.claim(limit=10)
    for attempt in attempts[:8]:
        await either.of(attempt).fail("no")
    assert await either.cancel_many(queue="mail", state="pending") == 20
    assert await either.cancel_many(tenant="acme") == 5
    assert await either.cancel_many(tenant="acme") == 0
    assert await either.retry_many(queue="mail") == 8
    assert await either.retry_many(state="cancelled", queue="other") == 5
    counts = await either.counts()
    assert (counts.pending, counts.cancelled, counts.running, counts.failed) == (13, 20, 2, 0)
    assert await either.delete_many(queue="mail") == 28
    assert await either.delete_many(all=True) == 5
    assert dict(await either.counts())["running"] == (await either.counts()).total == 2


async def test_many_of_an_unknown_filter(app: Windlass, either: Either) -> None:
    await either.enqueue("send", {})
    for act in (either.cancel_many, either.retry_many, either.run_now_many, either.delete_many):
        with pytest.raises(InvalidInput, match="there are: state, type, queue, tenant, chain"):
            await act(quee="mail")
        with pytest.raises(InvalidInput, match="state"):
            await act(state="done")
    assert (await either.counts()).pending == 1


async def test_pause_and_resume(app: Windlass, either: Either) -> None:
    await either.enqueue("send", {}, queue="mail")
    await either.enqueue("send", {}, queue="other")
    await either.pause("mail")
    await either.pause("mail")
    assert await either.paused() == ["mail"]
    assert [attempt.job.queue for attempt in await either.claim()] == ["other"]
    await either.resume("mail")
    await either.resume("never paused")
    assert await either.paused() == []
    assert [attempt.job.queue for attempt in await either.claim()] == ["mail"]
    with pytest.raises(InvalidInput, match="queue"):
        await either.pause("")


@pytest.mark.parametrize("end", ["complete", "fail"])
def test_a_job_that_is_not_kept_is_shown_as_it_ended(app: Windlass, end: str) -> None:
    job = app.enqueue("a", {}, keep=0)
    ended = app.complete(job.id, 7) if end == "complete" else app.fail(job.id, "no")
    assert (ended.state, ended.output) == (("completed", 7) if end == "complete" else ("failed", None))
    assert app.get(job.id) is None

"""Enqueueing, claiming, retrying."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from windlass import InvalidInput, Job, UnknownTask

from .conftest import Replicas

BASE = timedelta(seconds=10)


def claim(replicas: Replicas, worker: str = "replica 1") -> Job | None:
    """As a worker does it, one job at a time, for as long as the kind's lease says."""
    attempts = replicas.app.claim(1, lease=None, worker=worker)
    return attempts[0].job if attempts else None


def test_enqueue_with_the_usual_options(replicas: Replicas) -> None:
    """A kind and a payload; due now, three attempts, no key."""
    job = replicas.jobs.enqueue("agent-turn", {"session": "s", "text": "hello", "channel": "slack"})
    assert (job.type, job.input) == ("agent-turn", {"session": "s", "text": "hello", "channel": "slack"})
    assert (job.state, job.attempt, job.max_attempts, job.unique_key) == ("pending", 0, 3, None)
    assert job.run_at == job.created_at
    assert replicas.work() == 1
    assert job.result(20) == "About 'hello': 1 words, and well said."


def test_enqueue_with_all_that_can_be_said(replicas: Replicas) -> None:
    """A dedupe key, a time, a number of attempts."""
    later = datetime.now(UTC) + timedelta(hours=1)
    job = replicas.jobs.enqueue(
        "agent-turn", {"session": "s", "text": "hi"}, dedupe_key="slack:C1:17", run_at=later, max_attempts=7
    )
    assert (job.unique_key, job.max_attempts) == ("slack:C1:17", 7)
    assert abs(job.run_at - later) < timedelta(milliseconds=2)
    assert replicas.work() == 0
    replicas.pass_time(hours=1)
    assert replicas.work() == 1
    assert job.refresh().state == "completed"


def test_what_makes_no_sense_is_refused(replicas: Replicas) -> None:
    """At once, where it is enqueued, and nothing is."""
    turn: dict[str, Any] = {"session": "s", "text": "t"}
    wrong: list[tuple[str, dict[str, Any], dict[str, Any], type[Exception]]] = [
        ("agent-tern", turn, {}, UnknownTask),
        ("agent-turn", {"session": "s"}, {}, InvalidInput),
        ("agent-turn", turn | {"text": 5}, {}, InvalidInput),
        ("agent-turn", turn | {"mood": "bad"}, {}, InvalidInput),
        ("agent-turn", turn, {"max_attempts": 0}, InvalidInput),
        ("agent-turn", turn, {"run_at": datetime(2030, 1, 1)}, InvalidInput),
        ("agent-turn", turn, {"dedupe_key": ""}, InvalidInput),
    ]
    for kind, payload, options, error in wrong:
        with pytest.raises(error):
            replicas.jobs.enqueue(kind, payload, **options)
    assert replicas.app.counts().total == 0


def test_a_key_is_held_while_its_job_is_pending_and_no_longer(replicas: Replicas) -> None:
    """A second enqueue is a no-op while the first is pending, and a job of its own when that runs or is done."""
    first = replicas.turn("one", "key")
    again = replicas.turn("two", "key")
    assert (again, again.created, again.input["text"]) == (first, False, "one")
    assert replicas.app.counts().total == 1
    assert claim(replicas) == first
    second = replicas.turn("three", "key")
    assert second.created
    assert second != first
    assert replicas.work() == 1
    assert second.refresh().state == "completed"
    third = replicas.turn("four", "key")
    assert third.created
    assert replicas.turn("five", "other key").created


def test_a_job_that_falls_back_to_pending_does_not_want_its_key_again(replicas: Replicas) -> None:
    """A newer one holds the key by then; nothing is raised, and both are run."""
    replicas.model.fails_for = "older"
    older = replicas.turn("older", "key")
    replicas.work()
    newer = replicas.turn("newer", "key")
    assert newer.created
    (attempt,) = replicas.app.claim(1)
    assert attempt.job == newer
    newest = replicas.turn("newest", "key")
    attempt.retry("later")
    assert [job.refresh().state for job in (older, newer, newest)] == ["pending"] * 3
    kept = replicas.turn("not needed", "key")
    assert (kept, kept.created) == (newest, False)
    replicas.model.fails_for = None
    replicas.pass_time(seconds=12)
    replicas.work()
    assert sorted(replicas.model.answered) == ["newer", "newest", "older"]


async def test_enqueue_wakes_an_idle_worker_at_once(replicas: Replicas) -> None:
    """Five times in a row, which a look every five seconds cannot do."""
    other = replicas.another()
    async with replicas.app.worker() as worker:
        assert worker.poll_seconds == 5
        await (await asyncio.to_thread(replicas.turn, "warm up")).aresult(20)
        began = time.monotonic()
        for number in range(5):
            payload = {"session": "s", "text": f"message {number}"}
            job = await asyncio.to_thread(other.jobs.enqueue, "agent-turn", payload)
            await job.aresult(20)
        assert time.monotonic() - began < 15
    for platform in replicas.platforms:
        await platform.app.aclose()


async def test_without_hints_it_takes_five_seconds(
    fresh_sqlite_url: str, fresh_postgres_url: str, fresh_mongodb_url: str, tmp_path: Path
) -> None:
    """Workers that hear nothing find the job when they look."""

    async def time_one(number: int, url: str) -> timedelta:
        folder = tmp_path / str(number)
        folder.mkdir()
        replicas = await asyncio.to_thread(Replicas, url, folder)
        replicas.app.store.wakeup.listen = lambda listener: lambda: None  # type: ignore[method-assign]
        async with replicas.app.worker():
            await (await asyncio.to_thread(replicas.turn, "warm up")).aresult(20)
            for _ in range(3):
                await asyncio.sleep(0.5)  # until it has looked again, found nothing, and waits
                job = await asyncio.to_thread(replicas.turn, "hello")
                await job.aresult(20)
                claimed_at = (await job.arefresh()).claimed_at
                assert claimed_at is not None
                took = claimed_at - job.created_at
                if took > timedelta(seconds=1):
                    break  # else it was about to look, which is not so each time
        await replicas.app.aclose()
        return took

    urls = (fresh_sqlite_url, fresh_postgres_url, fresh_mongodb_url)
    times = await asyncio.gather(*(time_one(number, url) for number, url in enumerate(urls)))
    assert all(timedelta(seconds=1) < took < timedelta(seconds=12) for took in times), times


def test_one_claim(replicas: Replicas) -> None:
    """What is due first comes first; claimed, it is running, with its worker's name and one attempt more."""
    now = datetime.now(UTC)
    due = {minutes: replicas.turn(f"{minutes}", run_at=now + timedelta(minutes=minutes)) for minutes in (2, 1, 3)}
    future = replicas.turn("future", run_at=now + timedelta(hours=1))
    replicas.pass_time(minutes=10)
    assert [claim(replicas, f"replica {minutes}") for minutes in (1, 2, 3)] == [due[1], due[2], due[3]]
    assert claim(replicas) is None
    for minutes, job in due.items():
        held = job.refresh()
        assert (held.state, held.worker, held.attempt) == ("running", f"replica {minutes}", 1)
    assert future.refresh().state == "pending"


def test_success_stores_the_result(replicas: Replicas) -> None:
    """And the job is completed."""
    job = replicas.turn("hello you")
    replicas.work()
    done = job.refresh()
    assert (done.state, done.output, done.error) == ("completed", "About 'hello you': 2 words, and well said.", None)
    assert done.finished_at is not None


def test_failures_wait_longer_and_longer_and_then_it_has_failed(replicas: Replicas) -> None:
    """Pending at now + base·attempt², with its error; at the last attempt failed."""
    replicas.model.fails_for = "bad"
    job = replicas.turn("bad news")
    for number in (1, 2):
        assert replicas.work() == 1
        failed = job.refresh()
        assert (failed.state, failed.attempt) == ("pending", number)
        assert str(failed.error) == "ConnectionError: no answer about 'bad news'"
        claimed = failed.attempts[-1].started_at
        assert claimed is not None
        assert BASE * number**2 <= failed.run_at - claimed < BASE * (number + 1) ** 2
        assert replicas.work() == 0
        replicas.pass_time(seconds=10 * number**2)
    assert replicas.work() == 1
    given_up = job.refresh()
    assert (given_up.state, given_up.attempt) == ("failed", 3)
    assert str(given_up.error) == "ConnectionError: no answer about 'bad news'"
    assert len(given_up.attempts) == 3
    assert replicas.records.all("turn") == {}

"""The pull interface, for those who drive their own loop."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from tests.api.either import Either
from windlass import Conflict, InvalidInput, LeaseLost, StoreUnavailable, Windlass
from windlass.operation import Operation
from windlass.policy import Policy


async def test_claimed_in_order_and_completed(app: Windlass, either: Either) -> None:
    @app.task
    def square(number: int) -> int:
        return number**2

    for number in range(4):
        await either.enqueue("square", {"number": number}, priority=number)
    attempts = await either.claim(limit=3, worker="me", lease="5m")
    assert [attempt.job.input["number"] for attempt in attempts] == [3, 2, 1]
    first = attempts[0]
    assert (first.number, first.tenant, first.job.state, first.job.worker) == (1, "", "running", "me")
    assert timedelta(minutes=4) < first.lease_expires_at - first.job.claimed_at < timedelta(minutes=6)
    await either.of(first).complete(9)
    done = await either.of(first.job).refresh()
    assert (done.state, done.output, done.error) == ("completed", 9, None)
    assert done.finished_at is not None
    assert await either.of(first.job).result() == 9
    with pytest.raises(Conflict, match="settled already"):
        await either.of(first).complete(9)
    assert [attempt.job.input["number"] for attempt in await either.claim()] == [0]
    assert await either.claim() == []


async def test_failed_for_good(app: Windlass, either: Either) -> None:
    for error in ("no such user", KeyError("user")):
        await either.enqueue("send", {})
        (attempt,) = await either.claim()
        await either.of(attempt).fail(error)
        failed = await either.of(attempt.job).refresh()
        assert (failed.state, failed.attempt) == ("failed", 1)
        assert "user" in failed.error.message
        assert failed.error.type in ("Fail", "KeyError")


async def test_sent_back_to_be_tried_again(app: Windlass, either: Either) -> None:
    moment = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=2)
    for wish, seconds in (({"after": "1h"}, 3600), ({"at": moment}, 7200), ({"error": OSError("x"), "after": 60}, 60)):
        job = await either.enqueue("send", {})
        (attempt,) = await either.claim()
        await either.of(attempt).retry(**wish)
        waiting = await either.of(job).refresh()
        assert (waiting.state, waiting.attempt) == ("pending", 1)
        assert abs((waiting.run_at - waiting.created_at).total_seconds() - seconds) < 30
        assert waiting.error is not None
        await either.of(job).delete()
    with pytest.raises(InvalidInput, match="not both"):
        await either.of(attempt).retry(after=1, at=moment)


async def test_given_back_at_no_cost(app: Windlass, either: Either) -> None:
    await either.enqueue("send", {})
    (attempt,) = await either.claim()
    await either.of(attempt).release()
    (again,) = await either.claim()
    assert again.number == 1


async def test_renewed_and_lost(app: Windlass, either: Either) -> None:
    await either.enqueue("send", {})
    (attempt,) = await either.claim(lease=60)
    app.store.clock.move(timedelta(seconds=50))
    end = await either.of(attempt).renew()
    assert end == attempt.lease_expires_at
    assert timedelta(seconds=100) < end - attempt.job.claimed_at < timedelta(seconds=130)
    assert await either.rescue() == 0
    app.store.clock.move(timedelta(seconds=70))
    assert await either.rescue() == 1
    for late in (either.of(attempt).renew(), either.of(attempt).complete(1)):
        with pytest.raises(LeaseLost, match=str(attempt.job.id)):
            await late
    app.store.clock.move(timedelta(minutes=10))
    (again,) = await either.claim()
    assert (again.number, again.job) == (2, attempt.job)
    with pytest.raises(LeaseLost):
        await either.of(attempt).retry()
    await either.of(again).complete()


async def test_a_silent_worker_is_rescued_before_its_lease_ends_if_one_says_so(app: Windlass, either: Either) -> None:
    await either.enqueue("send", {})
    (attempt,) = await either.claim(lease="1d")
    assert await either.rescue() == 0
    assert await either.rescue(stale_before=attempt.job.claimed_at - timedelta(minutes=1)) == 0
    app.store.clock.move(timedelta(minutes=5))
    assert await either.rescue(stale_before=attempt.job.claimed_at + timedelta(minutes=1)) == 1


@pytest.mark.one_store
@pytest.mark.parametrize(
    "wrong",
    [
        {"limit": 0},
        {"limit": 10_001},
        {"limit": "1"},
        {"queues": "mail"},
        {"queues": [""]},
        {"types": "send"},
        {"lease": "soon"},
    ],
)
async def test_claims_that_cannot_be(app: Windlass, either: Either, wrong: dict) -> None:
    await either.enqueue("send", {})
    with pytest.raises(InvalidInput):
        await either.claim(**wrong)
    assert (await either.counts()).pending == 1


def test_the_next_of_a_key_is_waited_for_while_it_is_locked_for_a_moment(
    fresh_postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windlass.claim.LOCKED_SECONDS", 60.0)
    app = Windlass(fresh_postgres_url)
    job = app.enqueue("task", {}, order_key="key", tenant="acme")
    assert app.claim(1, order_key="other", tenant="acme") == []
    with psycopg.connect(fresh_postgres_url) as connection:
        connection.execute("SELECT FROM windlass_jobs FOR UPDATE")
        threading.Timer(1.0, connection.rollback).start()  # a commit that the disk takes its time for
        (attempt,) = app.claim(1, order_key="key", tenant="acme")
    assert attempt.job.id == job.id
    app.close()


@pytest.mark.parametrize("why", ["another type", "too late", "paused", "not yet"])
async def test_a_job_that_is_not_locked_is_not_waited_for(
    app: Windlass, either: Either, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windlass.claim.LOCKED_SECONDS", 60.0)
    options: dict[str, Any] = {"too late": {"expires": "1m"}, "not yet": {"delay": "1h"}}.get(why, {})
    await either.enqueue("task", {}, order_key="key", **options)
    await either.claim(1, order_key="another")  # which lets all in
    if why == "too late":
        app.store.clock.move(timedelta(minutes=2))
    if why == "paused":
        await either.pause("default")
    began = time.monotonic()
    assert await either.claim(1, order_key="key", types=["other"] if why == "another type" else None) == []
    assert time.monotonic() - began < 30


async def test_results_of_blockers_are_bounded(app: Windlass, either: Either, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a claim would read beyond the bound stays in the queue, unspent; one job always has its own."""
    monkeypatch.setattr("windlass.claim.MOST_BYTES", 10_000)
    blockers = [await either.enqueue("read", {}, queue="read") for _ in range(20)]
    for job in blockers:
        await either.enqueue("join", {}, queue="join", after=[job], max_attempts=1)
    await either.enqueue("plain", {}, queue="join")
    for attempt in await either.claim(20, queues=["read"]):
        size = 50_000 if attempt.job.id == blockers[10].id else 3000
        await either.of(attempt).complete("x" * size)
    held: list[int] = []
    plain = 0
    while attempts := await either.claim(100, queues=["join"]):
        counts = await either.counts()
        assert counts.pending == 21 - plain - len(held) - len(attempts), "what was not given is not in the queue"
        sizes = [len(output) for attempt in attempts for output in attempt.blockers]
        assert sum(sizes) <= 10_000 + 50_000 + 3 * 3000
        assert len(sizes) <= 10
        assert all(attempt.number == 1 for attempt in attempts)
        plain += sum(attempt.job.type == "plain" for attempt in attempts)
        held += sizes
        for attempt in attempts:
            await either.of(attempt).complete(None)
    assert sorted(held) == [3000] * 19 + [50_000]
    assert plain == 1


async def test_a_claim_that_cannot_read_the_results_gives_its_jobs_back(
    app: Windlass, either: Either, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocker = await either.enqueue("read", {}, queue="read")
    await either.enqueue("join", {}, queue="join", after=[blocker], max_attempts=1)
    await either.enqueue("plain", {}, queue="join", max_attempts=1)
    (attempt,) = await either.claim(1, queues=["read"])
    await either.of(attempt).complete("done")

    def away(ids: object) -> Operation[None]:
        yield from ()
        raise StoreUnavailable("away")

    with monkeypatch.context() as patch:
        patch.setattr(app.store, "blockers", away)
        with pytest.raises(StoreUnavailable, match="away"):
            await either.claim(2, queues=["join"])
    attempts = await either.claim(2, queues=["join"])
    assert sorted((one.job.type, one.number) for one in attempts) == [("join", 1), ("plain", 1)]


async def test_a_last_attempt_whose_claim_never_returned_is_not_spent(
    app: Windlass, either: Either, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocker = await either.enqueue("read", {}, queue="read")
    job = await either.enqueue("join", {}, queue="join", after=[blocker], max_attempts=1)
    (attempt,) = await either.claim(1, queues=["read"])
    await either.of(attempt).complete("done")

    def away(*_: object, **__: object) -> Operation[None]:
        yield from ()
        raise StoreUnavailable("away")

    with monkeypatch.context() as patch:
        patch.setattr(app.store, "blockers", away)
        patch.setattr(app.store, "settle", away)  # not even given back
        with pytest.raises(StoreUnavailable, match="away"):
            await either.claim(1, queues=["join"])
    app.store.clock.move(timedelta(minutes=5))
    assert await either.rescue() == 1
    assert (await either.get(job.id)).state == "pending"
    app.store.clock.move(timedelta(minutes=5))
    (attempt,) = await either.claim(1, queues=["join"])
    assert attempt.number == 1


def test_a_task_that_is_declared_after_a_claim_has_its_policy_in_the_next(new_app: Callable[..., Windlass]) -> None:
    app, outside = new_app(), new_app()
    for name, attempts in (("early", 3), ("late", 7)):
        app.task(name, max_attempts=attempts)(lambda: None)
        outside.enqueue(name, {})
        (attempt,) = app.claim()
        assert (attempt.job.type, attempt.job.max_attempts) == (name, attempts)


def test_the_policies_of_all_tasks_are_encoded_once(fresh_sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    app = Windlass(fresh_sqlite_url)
    encoded: list[Policy] = []

    def to_json(policy: Policy) -> dict[str, Any]:
        encoded.append(policy)
        return {}

    monkeypatch.setattr(Policy, "to_json", to_json)
    for number in range(3):
        app.task(f"task-{number}")(lambda: None)
    for _ in range(5):
        app.enqueue("task-0")
        assert len(app.claim()) == 1
    assert len(encoded) == 4  # of the tasks, and the default
    app.close()


@pytest.mark.one_store
@pytest.mark.parametrize(
    "wrong",
    [{"limit": 0}, {"queues": "default"}, {"queues": [""]}, {"types": [1]}, {"tenant": "acme"}, {"lease": "soon"}],
    ids=repr,
)
async def test_wrong_arguments_write_nothing(
    app: Windlass, either: Either, monkeypatch: pytest.MonkeyPatch, wrong: dict[str, Any]
) -> None:
    """Not even the jobs that arrive are admitted, and the error comes without a store that answers."""

    def unexpected(*_: object) -> None:
        raise AssertionError("the store was asked")

    monkeypatch.setattr(app, "run_operation", unexpected)
    monkeypatch.setattr(app, "arun_operation", unexpected)
    with pytest.raises(InvalidInput):
        await either.claim(**wrong)

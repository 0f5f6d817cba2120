"""From enqueue to result: what handlers are given, what they return, what they raise."""

from __future__ import annotations

import dataclasses
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID, uuid4

import msgspec
import pydantic
import pytest

from tests.api.either import Either
from windlass import (
    Attempt,
    Cancel,
    Fail,
    InvalidInput,
    JobCancelled,
    JobFailed,
    Retry,
    Snooze,
    Windlass,
    WindlassError,
    current_attempt,
)


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@dataclasses.dataclass
class Address:
    street: str
    number: int = 1


class Item(msgspec.Struct):
    name: str
    price: Decimal


class Order(pydantic.BaseModel):
    id: UUID
    items: list[str]


MOMENT = datetime(2030, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
VALUES: list[tuple[Any, Any]] = [
    (Address, Address("Main Street", 5)),
    (Item, Item("tea", Decimal("2.50"))),
    (Order, Order(id=uuid4(), items=["a", "b"])),
    (Decimal, Decimal("12345678901234567890.123456789")),
    (datetime, MOMENT),
    (date, date(2030, 1, 2)),
    (UUID, uuid4()),
    (Colour, Colour.BLUE),
    (list[Colour | None], [Colour.RED, None]),
    (dict[str, Address], {"home": Address("High Street")}),
    (str, "naïve — “text” 🎈"),
]


async def test_typed_arguments_and_results_come_out_as_they_went_in(app: Windlass, either: Either) -> None:
    seen: dict[str, Any] = {}
    for number, (kind, value) in enumerate(VALUES):

        def handler(value):
            seen[current_attempt().job.type] = value
            return value

        handler.__annotations__ = {"value": kind, "return": kind}
        task = app.task(f"task-{number}")(handler)
        job = await task.aenqueue(value) if either.is_async else task.enqueue(value)
        assert job.type == f"task-{number}"
    assert await either.run_worker(until_idle=True) == len(VALUES)
    assert seen == {f"task-{number}": value for number, (_, value) in enumerate(VALUES)}
    for job in await either.list():
        expected = VALUES[int(job.type.removeprefix("task-"))][1]
        result = await either.of(job).result()
        assert (result, type(result)) == (expected, type(expected))


async def test_the_attempt_is_given_and_found(app: Windlass, either: Either) -> None:
    seen: list[Attempt] = []

    @app.task
    async def asynchronous(attempt: Attempt, number: int) -> int:
        seen.extend((attempt, current_attempt()))
        return attempt.number + number

    @app.task
    def synchronous(number: int, *, attempt: Attempt) -> str:
        seen.extend((attempt, current_attempt()))
        return attempt.tenant

    with pytest.raises(WindlassError, match="current_attempt"):
        current_attempt()
    first = await either.enqueue("asynchronous", {"number": 1})
    second = await either.enqueue("synchronous", {"number": 1}, tenant="acme")
    assert await either.run_worker(until_idle=True) == 2
    assert await either.of(first).result() == 2
    assert await either.of(second).result() == "acme"
    assert seen[0] is seen[1]
    assert seen[2] is seen[3]
    assert {attempt.job for attempt in seen} == {first, second}
    with pytest.raises(WindlassError):
        current_attempt()


async def test_a_failing_handler_is_tried_again_by_its_backoff(app: Windlass, either: Either) -> None:
    @app.task(backoff="10m", max_attempts=3)
    def call(url: str) -> None:
        raise ConnectionError(f"{url} does not answer")

    job = await either.enqueue("call", {"url": "example.org"})
    for number in (1, 2):
        assert await either.run_worker(until_idle=True) == 1
        tried = await either.of(job).refresh()
        assert (tried.state, tried.attempt) == ("pending", number)
        assert tried.error.type == "ConnectionError"
        app.store.clock.move(timedelta(minutes=9))
        assert await either.run_worker(until_idle=True) == 0
        app.store.clock.move(timedelta(minutes=2))
    assert await either.run_worker(until_idle=True) == 1
    failed = await either.of(job).refresh()
    assert (failed.state, failed.attempt) == ("failed", 3)
    assert failed.finished_at is not None
    assert (failed.error.type, failed.error.message) == ("ConnectionError", "example.org does not answer")
    assert "in call" in failed.error.traceback
    assert [record.number for record in failed.attempts] == [1, 2, 3]
    assert all("does not answer" in record.error.message for record in failed.attempts)
    with pytest.raises(JobFailed, match=r"call.*example\.org does not answer"):
        await either.of(job).result()
    app.store.clock.move(timedelta(days=1))
    assert await either.run_worker(until_idle=True) == 0


async def test_a_handler_says_how_its_attempt_ends(app: Windlass, either: Either) -> None:
    ways = {
        "retry": Retry("busy", after="1h"),
        "snooze": Snooze(after="1h"),
        "fail": Fail("no such user"),
        "cancel": Cancel("not wanted any more"),
    }

    @app.task
    async def end(way: str) -> str:
        if current_attempt().number == 1 and current_attempt().job.run_at < late:
            raise ways[way]
        return f"after {current_attempt().number}"

    late = datetime.now(UTC) + timedelta(minutes=30)
    jobs = {way: await either.enqueue("end", {"way": way}) for way in ways}
    assert await either.run_worker(until_idle=True) == 4
    ended = {way: await either.of(job).refresh() for way, job in jobs.items()}
    states = [(job.state, job.attempt) for job in ended.values()]
    assert states == [("pending", 1), ("pending", 0), ("failed", 1), ("cancelled", 1)]
    for way in ("retry", "snooze"):
        assert timedelta(minutes=59) < ended[way].run_at - ended[way].created_at < timedelta(minutes=61)
    with pytest.raises(JobFailed, match="no such user"):
        await either.of(jobs["fail"]).result()
    with pytest.raises(JobCancelled, match="not wanted any more"):
        await either.of(jobs["cancel"]).result()
    app.store.clock.move(timedelta(hours=1, minutes=1))
    assert await either.run_worker(until_idle=True) == 2
    assert await either.of(jobs["retry"]).result() == "after 2"
    assert await either.of(jobs["snooze"]).result() == "after 1"


async def test_a_result_that_cannot_be_stored_fails_the_attempt(app: Windlass, either: Either) -> None:
    @app.task(max_attempts=1)
    def answer(kind: str) -> Any:
        return {"nan": float("nan"), "object": object(), "long": "x" * 2_000_000, "naive": datetime(2030, 1, 1)}[kind]

    jobs = [await either.enqueue("answer", {"kind": kind}) for kind in ("nan", "object", "long", "naive")]
    assert await either.run_worker(until_idle=True) == 4
    for job, reason in zip(jobs, ("not JSON", "cannot be stored", "limit", "timezone"), strict=True):
        failed = await either.of(job).refresh()
        assert (failed.state, failed.error.type) == ("failed", "InvalidInput")
        assert reason in failed.error.message


async def test_an_error_that_cannot_be_stored_is_made_safe(app: Windlass, either: Either) -> None:
    @app.task(max_attempts=1)
    def explode() -> None:
        raise ValueError("a\0b\ud800c" + "x" * 100_000)

    job = await either.enqueue("explode")
    assert await either.run_worker(until_idle=True) == 1
    failed = await either.of(job).refresh()
    assert failed.state == "failed"
    assert failed.error.message.startswith("a\\x00b\\ud800cxxx")
    assert len(failed.error.message) < 20_000


def test_a_second_task_of_one_name_is_refused() -> None:
    app = Windlass("sqlite://")

    @app.task
    def send() -> None: ...

    with pytest.raises(InvalidInput, match="there is a task 'send' already"):

        @app.task(name="send")
        def other() -> None: ...

    assert app.tasks["send"] is send

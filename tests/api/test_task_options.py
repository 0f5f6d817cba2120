"""`unique`, `order_key` and `labels` of a task: for each of its jobs, however that is made."""

from __future__ import annotations

from datetime import date
from typing import Any

import msgspec
import pytest

from windlass import Attempt, Conflict, Continue, InvalidInput, Unique, Windlass


class Order(msgspec.Struct):
    id: int
    shop: str = "main"


def test_a_key_made_of_the_arguments_makes_jobs_unique(app: Windlass) -> None:
    @app.task(unique=lambda user_id: f"welcome-{user_id}")
    def send_welcome(user_id: int, text: str = "hello") -> None: ...

    first, same, other = send_welcome.enqueue(1), send_welcome.enqueue(user_id=1, text="again"), send_welcome.enqueue(2)
    assert (same, same.created, other.created) == (first, False, True)
    assert first.unique_key == "welcome-1"
    assert not app.enqueue("send_welcome", {"user_id": 1}).created
    assert [job.created for job in app.enqueue_many([send_welcome.call(2), send_welcome.call(3)])] == [False, True]


async def test_the_async_twin_as_well(app: Windlass) -> None:
    @app.task(unique=lambda user_id: f"welcome-{user_id}")
    async def send_welcome(user_id: int) -> None: ...

    assert (await send_welcome.aenqueue(1)).created
    assert not (await send_welcome.aenqueue(1)).created
    assert not (await app.aenqueue("send_welcome", {"user_id": 1})).created
    await app.aclose()


def test_a_function_sees_the_arguments_as_the_handler_does(app: Windlass) -> None:
    seen: list[Any] = []

    def key(day: date, order: Order, note: str) -> str:
        seen.append((day, order, note))
        return f"{order.shop}-{order.id}"

    @app.task(order_key=key)
    def place(order: Order, day: date, note: str = "none") -> None: ...

    job = place.enqueue(Order(7), day=date(2030, 1, 2))
    named = app.enqueue("place", {"order": {"id": 7}, "day": "2030-01-02"})
    assert (job.order_key, named.order_key) == ("main-7", "main-7")
    assert seen == [(date(2030, 1, 2), Order(7), "none")] * 2


def test_each_option_may_be_a_value_or_a_function(app: Windlass) -> None:
    @app.task(
        unique=Unique("only", on_conflict="raise"), order_key="line", labels=lambda **all: {"user": str(all["n"])}
    )
    def plain(n: int) -> None: ...

    job = plain.enqueue(5)
    assert (job.unique_key, job.order_key, dict(job.labels)) == ("only", "line", {"user": "5"})
    with pytest.raises(Conflict):
        plain.enqueue(6)


def test_a_function_may_say_that_there_is_no_key(app: Windlass) -> None:
    @app.task(unique=lambda n: f"even-{n}" if n % 2 == 0 else None, order_key=lambda n: None, labels=lambda n: None)
    def some(n: int) -> None: ...

    assert [some.enqueue(n).created for n in (1, 1, 2, 2)] == [True, True, True, False]
    assert some.enqueue(3).order_key is None


def test_an_option_of_one_job_wins(app: Windlass) -> None:
    @app.task(unique=lambda n: f"n-{n}", order_key="line", labels={"kind": "task"})
    def task(n: int) -> None: ...

    task.enqueue(1)
    assert task.using(unique="another").enqueue(1).unique_key == "another"
    assert task.using(unique=None).enqueue(1).unique_key is None
    assert app.enqueue("task", {"n": 1}, unique=None, order_key=None).order_key is None
    assert task.using(delay=1).using(order_key="other").enqueue(2).order_key == "other"
    assert dict(task.using(labels={"kind": "job"}).enqueue(3).labels) == {"kind": "job"}
    assert dict(task.using(delay=1).enqueue(4).labels) == {"kind": "task"}


def test_the_next_job_of_a_chain_has_them_too(app: Windlass) -> None:
    @app.task(order_key=lambda n: f"line-{n}", labels={"kind": "second"})
    def second(n: int) -> int:
        return n

    @app.task
    def start(attempt: Attempt) -> Continue[int]:
        return Continue(second.call(4))

    job = start.enqueue()
    app.run_worker(until_idle=True)
    (following,) = [one for one in app.list(chain=job.id) if one.type == "second"]
    assert (following.order_key, dict(following.labels), job.result(20)) == ("line-4", {"kind": "second"}, 4)


def test_the_jobs_of_a_schedule_have_them_too(app: Windlass) -> None:
    @app.task(unique=lambda source: f"poll-{source}")
    def poll(source: str) -> None: ...

    schedule = app.schedule("@every 1h", poll.call(source="mail"))
    assert schedule.job.unique_key == "poll-mail"


def test_an_error_in_the_function_is_the_callers(app: Windlass) -> None:
    @app.task(unique=lambda n: {1: "one"}[n])
    def task(n: int) -> None: ...

    with pytest.raises(KeyError):
        task.enqueue(2)
    assert app.counts().total == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"unique": lambda user: user}, "unique takes `user`, which is no argument of the task; there are: n"),
        ({"order_key": lambda *all: "x"}, r"order_key takes `\*all`"),
        ({"unique": ""}, "unique key"),
        ({"unique": 3}, "unique key"),
        ({"order_key": ""}, "order_key"),
        ({"labels": {"a": 1}}, "labels map strings to strings"),
        ({"labels": ["a"]}, "labels map strings to strings"),
    ],
)
def test_what_makes_no_sense_is_refused_at_declaration(options: dict[str, Any], message: str) -> None:
    app = Windlass("sqlite://")
    with pytest.raises(InvalidInput, match=message):

        @app.task(**options)
        def task(n: int) -> None: ...

    assert app.tasks == {}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"unique": lambda n: n}, "unique key"),
        ({"order_key": lambda n: n}, "order_key: a string"),
        ({"labels": lambda n: {"n": n}}, "labels map strings to strings"),
    ],
)
def test_a_function_that_gives_something_else_is_refused_at_enqueue(options: dict[str, Any], message: str) -> None:
    app = Windlass("sqlite://")

    @app.task(**options)
    def task(n: int) -> None: ...

    with pytest.raises(InvalidInput, match=message):
        task.enqueue(1)
    assert app.counts().total == 0

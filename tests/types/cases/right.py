"""Code that type checkers accept, with the types that they find in it."""

from __future__ import annotations

from typing import Any, assert_type

from windlass import Attempt, Call, Continue, Defaults, Job, Task, Tasks, Unique, Windlass

app = Windlass("sqlite://", defaults=Defaults(lease="5m", backoff="1s", max_attempts=None, keep="1d"))
tasks = Tasks()


@app.task
async def send(user_id: int) -> str:
    return f"sent to {user_id}"


@app.task(queue="sums", unique=lambda a, b: f"{a}-{b}", retry_on=(OSError,), fail_on=ValueError)
def add(a: int, b: int = 1) -> int:
    return a + b


@tasks.task(unique=Unique("one"), order_key="one", labels={"kind": "mail"})
async def welcome(user_id: int) -> Continue[str]:
    return Continue(send.call(user_id))


@app.task
async def perhaps(user_id: int) -> Continue[str] | str:
    if user_id == 1:
        return Continue(welcome.call(user_id))
    return Continue(perhaps.call(1)) if user_id else "nobody"


@app.schedule("@hourly")
@app.task
async def hourly() -> int:
    return 1


@app.schedule("@daily")
async def daily() -> int:
    return 1


async def arguments_and_results() -> None:
    job = send.enqueue(user_id=42)
    assert_type(job, Job[str])
    assert_type(job.result(), str)
    assert_type(await job.aresult("10s"), str)
    assert_type(job.refresh().result(), str)
    assert_type(await send(42), str)
    assert_type((await send.aenqueue(42)).result(), str)
    assert_type(send.using(delay="10m").enqueue(42).result(), str)
    assert_type(send.call(42), Call[str])
    assert_type(add(1), int)
    assert_type(add.enqueue(1, b=2).result(), int)
    assert_type(welcome.enqueue(1).result(), str)
    assert_type(perhaps.enqueue(1).result(), str)
    assert_type(await perhaps.enqueue(1).aresult(), str)
    assert_type(app.enqueue_many([send.call(1), send.call(2)]), list[Job[str]])
    assert_type(hourly.enqueue().result(), int)
    assert_type(await daily(), int)
    plain: Job = job
    assert_type(plain.result(), Any)
    app.include(tasks, prefix="mail.")


def takes(task: Task[[int], str], job: Job[str]) -> None:
    assert_type(task.enqueue(1), Job[str])


takes(send, send.enqueue(1))


# An Attempt may stand anywhere, and is not given by those who enqueue.


@app.task
async def first(attempt: Attempt, order: int) -> bytes:
    return b""


@app.task
async def alone(attempt: Attempt) -> bytes:
    return b""


@app.task
async def second(order: int, attempt: Attempt) -> bytes:
    return b""


@app.task
def third(order: int, note: str, attempt: Attempt) -> bytes:
    return b""


@app.task(queue="orders")
async def fourth(order: int, note: str, more: str, attempt: Attempt) -> bytes:
    return b""


@app.task
async def keyword(order: int, *, attempt: Attempt) -> bytes:
    return b""


@app.task
async def only_keyword(*, attempt: Attempt) -> bytes:
    return b""


@app.task
async def other_name(order: int, current: Attempt, note: str = "") -> bytes:
    return b""


@app.task
async def after_a_default(order: int, note: str = "", *, attempt: Attempt) -> bytes:
    return b""


@app.task
async def anything(data: Any) -> bytes:
    return b""


@app.task
async def any_object(data: object, note: str = "") -> bytes:
    return b""


def with_attempts() -> None:
    assert_type(first.enqueue(order=1).result(), bytes)
    assert_type(alone.enqueue().result(), bytes)
    assert_type(second.enqueue(order=1).result(), bytes)
    assert_type(third.enqueue(1, note="").result(), bytes)
    assert_type(fourth.enqueue(1, "", more="").result(), bytes)
    assert_type(keyword.enqueue(order=1).result(), bytes)
    assert_type(only_keyword.enqueue().result(), bytes)
    assert_type(other_name.enqueue(1, note="").result(), bytes)
    assert_type(after_a_default.enqueue(1).result(), bytes)
    anything.enqueue({"a": 1})
    any_object.enqueue(data=[1])


# In a block a handler says what comes of its job by other means than by returning it.


@app.task
async def in_a_block(attempt: Attempt) -> None:
    async with attempt.transaction():
        attempt.complete(Continue(send.call(1)))


assert in_a_block.enqueue().result() == "sent to 1"

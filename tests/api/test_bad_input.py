"""What is refused: each with a name, a reason, and nothing half-written."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from datetime import datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Any
from uuid import uuid4

import pytest

from windlass import InvalidInput, Task, Unique, Windlass

NAIVE = datetime(2030, 1, 1)


@dataclasses.dataclass
class Address:
    street: str


def deliver(number: int, address: Address, more: Any = None) -> None: ...


# Made with `deliver`, whose arguments are right.
OPTIONS: list[tuple[dict[str, Any], str]] = [
    ({"nonsense": 1}, "unknown option nonsense; there are: connection, id"),
    ({"run_at": NAIVE}, "no timezone"),
    ({"run_at": "tomorrow"}, "run_at is a datetime"),
    ({"run_at": datetime.now().astimezone(), "delay": 1}, "not both"),
    ({"delay": -1}, "not a duration"),
    ({"delay": "soon"}, "not a duration"),
    ({"expires": NAIVE}, "no timezone"),
    ({"priority": 101}, "from -100 to 100"),
    ({"priority": -101}, "from -100 to 100"),
    ({"priority": 1.5}, "from -100 to 100"),
    ({"priority": None}, "from -100 to 100"),
    ({"queue": "ma\0il"}, "queue: .*NUL"),
    ({"queue": ""}, "queue: .*not empty"),
    ({"queue": None}, "queue: .*not empty"),
    ({"queue": "x" * 201}, "200 at the most"),
    ({"queue": "\ud800"}, "queue: .*surrogates"),
    ({"tenant": "ac\0me"}, "tenant: .*NUL"),
    ({"tenant": 5}, "tenant: .*string"),
    ({"tenant": None}, "tenant: .*string"),
    ({"labels": {"a": 1}}, "labels map strings"),
    ({"labels": {"a": "\0"}}, "NUL"),
    ({"labels": ["a"]}, "labels map strings"),
    ({"labels": {"a": "x" * 20_000}}, "limit of 10,000"),
    ({"id": "42"}, "id is a UUID"),
    ({"id": 42}, "id is a UUID"),
    ({"unique": ""}, "unique key"),
    ({"unique": 42}, "unique key"),
    ({"unique": "k\0"}, "unique key: .*NUL"),
    ({"unique": "x" * 501}, "500 at the most"),
    ({"max_attempts": 0}, "max_attempts"),
    ({"max_attempts": True}, "max_attempts"),
    ({"max_attempts": "5"}, "max_attempts"),
    ({"timeout": 0}, "timeout must be longer"),
    ({"lease": 0}, "lease must be longer"),
    ({"lease": "x"}, "not a duration"),
    ({"keep": -1}, "not a duration"),
    ({"backoff": "often"}, "not a duration"),
    ({"backoff": object()}, "duration"),
]

UNIQUE: list[tuple[dict[str, Any], str]] = [
    ({"key": ""}, "not empty"),
    ({"key": None}, "string"),
    ({"key": "k", "until": "sometime"}, "until is .*'claimed', 'finished', 'forever'"),
    ({"key": "k", "until": 0}, "longer than zero"),
    ({"key": "k", "until": -1}, "until is"),
    ({"key": "k", "until": None}, "until is"),
    ({"key": "k", "on_conflict": "ignore"}, "'keep', 'replace' or 'raise'"),
    ({"key": "k", "on_conflict": "replace"}, "goes with until='claimed'"),
    ({"key": "k", "until": "forever", "on_conflict": "replace"}, "goes with until='claimed'"),
]

ARGUMENTS: list[tuple[tuple[Any, ...], dict[str, Any], str]] = [
    (("one", Address("a")), {}, "number: .*int"),
    ((1, "a"), {}, "address: .*object"),
    ((1,), {}, "address"),
    ((1, Address("a"), 2, 3), {}, "deliver: "),
    ((1, Address("a")), {"nonsense": 1}, "nonsense"),
    ((1, Address("a"), object()), {}, r"more: object cannot be stored"),
    ((1, Address("a"), {"a": [1, {2: 3}]}), {}, r"more\.a.*keys are strings"),
    ((1, Address("a"), {"a": [1, 1j]}), {}, "more.a.*complex"),
    ((1, Address("a"), float("nan")), {}, "more: nan"),
    ((1, Address("a"), [float("inf")]), {}, "more.*inf"),
    ((1, Address("a"), Decimal("NaN")), {}, "more: NaN"),
    ((1, Address("a"), NAIVE), {}, "more: .*timezone"),
    ((1, Address("a\0")), {}, r"address\.street: .*NUL"),
    ((1, Address("\ud800")), {}, "surrogates"),
    ((2**63, Address("a")), {}, "number: .*64 bits"),
    ((1, Address("a"), b"bytes"), {}, "bytes come back as bytes only"),
    ((1, Address("a"), "x" * 2_000_000), {}, "bytes of JSON are more than the limit of 1,048,576.*max_payload"),
]


@pytest.fixture
def task(app: Windlass) -> Task[..., Any]:
    return app.task(deliver)


async def refuses(match: str, make: Callable[..., Any], *args: Any) -> None:
    async def attempt() -> None:
        result = make(*args)
        if inspect.isawaitable(result):
            await result

    with pytest.raises(InvalidInput, match=match):
        await attempt()


async def test_options_that_cannot_be(app: Windlass, task: Task[..., Any]) -> None:
    def by_task(options: dict[str, Any]) -> None:
        task.using(**options).enqueue(1, Address("a"))

    async def by_its_twin(options: dict[str, Any]) -> None:
        await task.using(**options).aenqueue(1, Address("a"))

    def by_name(options: dict[str, Any]) -> None:
        app.enqueue("elsewhere", {}, **options)

    def in_a_batch(options: dict[str, Any]) -> None:
        app.enqueue_many([task.call(1, Address("a")), task.using(**options).call(1, Address("a"))])

    for options, match in OPTIONS:
        for make in (by_task, by_its_twin, by_name, in_a_batch):
            await refuses(match, make, options)
    assert (await app.acounts()).total == 0
    await app.aclose()


async def test_arguments_that_cannot_be(app: Windlass, task: Task[..., Any]) -> None:
    for args, kwargs, match in ARGUMENTS:
        for make in (task.enqueue, task.aenqueue, task.call):
            await refuses(match, partial(make, *args, **kwargs))
    for more, match in ((object(), "object"), (NAIVE, "timezone"), ("x" * 2_000_000, "limit"), ({1: 2}, "keys")):
        await refuses(match, app.enqueue, "elsewhere", {"more": more})
        await refuses(match, app.aenqueue, "elsewhere", {"more": more})
    assert (await app.acounts()).total == 0
    await app.aclose()


async def test_calls_by_name_that_cannot_be(app: Windlass, task: Task[..., Any]) -> None:
    for name in ("", "\0", None, 5, ["deliver"], "x" * 201):
        await refuses("type", app.enqueue, name, {})
    for input in ([], [1], "text", 5, ""):
        for name in ("deliver", "elsewhere"):
            await refuses("object of arguments by name", app.enqueue, name, input)
    call = task.call(1, Address("a"))
    for calls in (call, "abc", [call, "deliver"], [None], 5):
        await refuses("enqueue_many takes", app.enqueue_many, calls)
        await refuses("enqueue_many takes", app.aenqueue_many, calls)
    assert (await app.acounts()).total == 0
    await app.aclose()


@pytest.mark.parametrize(("arguments", "match"), UNIQUE)
def test_unique_misused(arguments: dict[str, Any], match: str) -> None:
    with pytest.raises(InvalidInput, match=match):
        Unique(**arguments)


def test_a_limit_that_the_app_sets(new_app: Callable[..., Windlass]) -> None:
    small = new_app(max_payload=100)
    with pytest.raises(InvalidInput, match="limit of 100"):
        small.enqueue("send", {"text": "x" * 100})
    assert small.enqueue("send", {"text": "x" * 50}).created


def test_duplicates_in_one_batch_are_one_job(app: Windlass) -> None:
    id = uuid4()
    calls = [app.call("send", {}, id=id), app.call("send", {}, id=str(id)), app.call("send", {}, unique="k")] * 2
    jobs = app.enqueue_many(calls)
    assert [job.created for job in jobs] == [True, False, True, False, False, False]
    assert app.counts().total == 2


TASKS: list[tuple[dict[str, Any], str]] = [
    ({"queue": ""}, "queue"),
    ({"queue": "\0"}, "NUL"),
    ({"priority": 1000}, "from -100 to 100"),
    ({"max_attempts": 0}, "max_attempts"),
    ({"backoff": "often"}, "not a duration"),
    ({"timeout": -5}, "not a duration"),
    ({"lease": timedelta()}, "lease must be longer"),
    ({"keep": "a while"}, "not a duration"),
    ({"name": "x\0"}, "NUL"),
    ({"name": 5}, "task"),
]


@pytest.mark.parametrize(("options", "match"), TASKS)
def test_tasks_that_cannot_be(options: dict[str, Any], match: str) -> None:
    app = Windlass("sqlite://")
    with pytest.raises(InvalidInput, match=match):
        app.task(**options)(deliver)
    assert app.tasks == {}


def test_functions_that_cannot_be_tasks() -> None:
    app = Windlass("sqlite://")

    def positional(number, /) -> None: ...

    def starred(*numbers) -> None: ...

    for function in (positional, starred):
        with pytest.raises(InvalidInput, match=function.__name__):
            app.task(function)
    assert app.tasks == {}

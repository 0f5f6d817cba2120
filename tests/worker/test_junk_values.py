"""Whatever a handler returns, raises, says or leaves behind, its job ends in a stated state, alike on each store, and
the worker goes on."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from windlass import Attempt, Retry, Snooze, Windlass
from windlass.job import ERROR_LIMIT


def work(app: Windlass, **options: Any) -> int:
    return app.run_worker(until_idle=True, **({"concurrency": 5} | options))


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


def endless() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


class Hostile:
    """Nothing can be asked of it."""

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(f"no {name} here")


# What is returned, and what the job's error says of it.
RESULTS: dict[str, tuple[Callable[[], Any], str]] = {
    "nan": (lambda: float("nan"), "nan"),
    "infinity in a list": (lambda: [1.0, float("-inf")], "[1]"),
    "lone surrogate": (lambda: "a\ud800b", "surrogate"),
    "lone surrogate in a key": (lambda: {"\udfff": 1}, "surrogate"),
    "nul": (lambda: {"text": "a\0b"}, "text"),
    "nul in a key": (lambda: {"a\0b": 1}, "NUL"),
    "huge": (lambda: "x" * (2 * 1024 * 1024), "2,097,154 bytes"),
    "an integer of 5,000 digits": (lambda: 10**5000, "64 bits"),
    "an object": (object, "object"),
    "a hostile object": (Hostile, "Hostile"),
    "a function": (lambda: work, "function"),
    "a generator": (lambda: (n for n in range(3)), "generator"),
    "keys that are no text": (lambda: {1: 2}, "keys are strings"),
    "nested too deep": (lambda: nested(5000), "deep"),
    "a ring": (endless, "deep"),
    "a naive datetime": (lambda: datetime(2026, 1, 1), "timezone"),
}


def test_junk_in_a_result_fails_the_attempt_and_says_why(app: Windlass) -> None:
    """In the loop, in a thread; also where attempts are left, no junk is stored and none keeps the job running."""

    @app.task(max_attempts=1)
    async def in_loop(what: str) -> Any:
        return RESULTS[what][0]()

    @app.task(max_attempts=1)
    def in_thread(what: str) -> Any:
        return RESULTS[what][0]()

    @app.task(max_attempts=2, backoff="1h")
    async def again(what: str) -> Any:
        return RESULTS[what][0]()

    jobs = {(task.name, what): task.enqueue(what) for what in RESULTS for task in (in_loop, in_thread, again)}
    assert work(app) == len(jobs)
    for (name, what), job in jobs.items():
        after = job.refresh()
        assert (what, after.state) == (what, "pending" if name == "again" else "failed")
        assert after.error is not None
        assert (what, after.error.type) == (what, "InvalidInput")
        assert RESULTS[what][1] in after.error.message, (what, after.error.message)
        assert after.output is None
    assert app.counts().running == 0


def chain_of_causes(length: int) -> BaseException:
    error: BaseException = ValueError("the first")
    for number in range(length):
        after = ValueError(f"number {number}")
        after.__cause__ = error
        error = after
    return error


def ring_of_causes() -> BaseException:
    one, other = ValueError("one"), ValueError("other")
    one.__cause__, other.__cause__ = other, one
    return one


def with_notes() -> BaseException:
    error = ValueError("noted")
    error.add_note("a\0b\ud800" * 10_000)
    return error


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")

    __repr__ = __str__


class NotText(Exception):
    def __str__(self) -> Any:
        return 5


class Lying(Exception):
    """Its message is another whenever one asks, and never short."""

    def __str__(self) -> str:
        return "\0" * 1_000_000


ERRORS: dict[str, tuple[Callable[[], BaseException], str]] = {
    "nul and surrogates": (lambda: ValueError("a\0b\udc80c"), "a\\x00b\\udc80c"),
    "huge": (lambda: ValueError("y" * 5_000_000), "y" * 100),
    "without words": (Unspeakable, "Unspeakable"),
    "whose words are no text": (NotText, "NotText"),
    "nothing but nul": (Lying, "\\x00"),
    "a long chain": (lambda: chain_of_causes(3000), "number 2999"),
    "a ring": (ring_of_causes, "one"),
    "with notes": (with_notes, "noted"),
    "a group": (lambda: ExceptionGroup("many", [ValueError(str(n)) for n in range(5000)]), "many"),
    "a long name": (lambda: type("E" * 100_000, (Exception,), {})("named"), "named"),
    "out of memory": (lambda: MemoryError(), "MemoryError"),
    "stop iteration": (lambda: StopIteration(1), "StopIteration"),
    "stop async iteration": (lambda: StopAsyncIteration(), "StopAsyncIteration"),
    "the way out": (lambda: SystemExit(3), "SystemExit"),
    "a key press": (lambda: KeyboardInterrupt(), "KeyboardInterrupt"),
    "the end of a generator": (lambda: GeneratorExit(), "GeneratorExit"),
    "cancelled by nobody": (lambda: asyncio.CancelledError("nobody"), "CancelledError"),
}


@pytest.mark.parametrize("kind", ["loop", "thread"])
def test_junk_in_an_error_is_made_safe_and_stored(app: Windlass, kind: str) -> None:
    if kind == "loop":

        @app.task(name="bad", max_attempts=1)
        async def in_loop(what: str) -> None:
            raise ERRORS[what][0]()
    else:

        @app.task(name="bad", max_attempts=1)
        def in_thread(what: str) -> None:
            raise ERRORS[what][0]()

    @app.task
    async def good() -> str:
        return "fine"

    jobs = {what: app.enqueue("bad", {"what": what}) for what in ERRORS}
    last = good.enqueue()
    assert work(app, concurrency=2) == len(jobs) + 1
    for what, job in jobs.items():
        after = job.refresh()
        assert (what, after.state, len(after.attempts)) == (what, "failed", 1)
        assert ERRORS[what][1] in str(after.error), what
        assert after.error is not None
        assert len(after.error.type) <= 200
        assert len(after.error.message) <= 4 * ERROR_LIMIT
    assert last.result() == "fine"


EXTREMES: dict[str, Callable[[], BaseException]] = {
    "the last moment": lambda: Retry(at=datetime.max.replace(tzinfo=UTC)),
    "beyond the last": lambda: Retry(at=datetime.max.replace(tzinfo=timezone(timedelta(hours=-14)))),
    "beyond the beginning": lambda: Snooze(at=datetime.min.replace(tzinfo=timezone(timedelta(hours=14)))),
    "the first moment": lambda: Snooze(at=datetime.min.replace(tzinfo=UTC)),
    "a thousand years": lambda: Retry(after=timedelta(days=365_250)),
    "a thousand years of sleep": lambda: Snooze(after=timedelta(days=365_250)),
    "no time at all": lambda: Retry(after=float("nan")),
}


@pytest.mark.parametrize("when", EXTREMES)
def test_whenever_a_job_is_to_come_back_it_is_settled_and_can_be_read(app: Windlass, when: str) -> None:
    @app.task(backoff="1h")
    async def extreme(attempt: Attempt) -> str:
        if attempt.job.error is None and not attempt.job.notes.text:
            attempt.progress(float("nan"), "a\0b\ud800" + "x" * 100_000)
            attempt.log("\0\udfff")
            raise EXTREMES[when]()
        return "came back"

    @app.task
    async def good() -> str:
        return "fine"

    job, other = extreme.enqueue(), good.enqueue()
    work(app)
    after = job.refresh()
    assert after.state == ("completed" if when == "the first moment" else "pending")
    assert 1 <= after.run_at.year <= 9999
    if "beyond" in when or when == "no time at all":
        assert "InvalidInput" in str(after.error)
    assert after.notes.text.startswith("a\\x00b\\ud800x")
    assert other.result() == "fine"
    assert {one.id for one in app.list()} == {job.id, other.id}


def test_handlers_that_leak_generators_tasks_and_threads_hurt_no_other_job(app: Windlass) -> None:
    kept: list[Any] = []

    def numbers() -> Iterator[int]:
        try:
            yield 1
        finally:
            kept.append("closed")
            raise RuntimeError("while it is thrown away")

    async def async_numbers() -> AsyncIterator[int]:
        try:
            yield 1
            yield 2
        finally:
            await asyncio.sleep(0)
            raise RuntimeError("while it is thrown away")

    @app.task
    async def leaks(n: int) -> int:
        next(numbers())
        kept.append(numbers())
        next(kept[-1])
        async for _ in async_numbers():
            break
        kept.append(async_numbers())
        await anext(kept[-1])
        kept.append(asyncio.create_task(asyncio.sleep(60)))
        gc.collect()
        return n

    @app.task(max_attempts=1)
    async def is_a_generator() -> Any:
        yield 1

    @app.task(max_attempts=1)
    def is_a_plain_generator() -> Any:
        yield 1

    @app.task(max_attempts=1)
    def gives_a_coroutine() -> Any:
        return asyncio.sleep(0)

    jobs = [leaks.enqueue(n) for n in range(6)]
    odd = [is_a_generator.enqueue(), is_a_plain_generator.enqueue(), gives_a_coroutine.enqueue()]
    previous, sys.unraisablehook = sys.unraisablehook, lambda _: None  # what is thrown away complains: it is meant to
    try:
        assert work(app) == 9
        kept.clear()
        gc.collect()
    finally:
        sys.unraisablehook = previous
    assert [job.result() for job in jobs] == list(range(6))
    assert {job.refresh().state for job in odd} == {"failed"}
    assert {str(job.refresh().error).split(":")[0] for job in odd} == {"InvalidInput"}


def test_handlers_that_recurse_fail_and_the_worker_continues(app: Windlass) -> None:
    def deeper(n: int) -> int:
        return deeper(n + 1) + 1

    async def adeeper(n: int) -> int:
        return await adeeper(n + 1) + 1

    class Deep:
        def __eq__(self, other: object) -> bool:
            return [self] == [other]  # through C code and back

        __hash__ = None  # type: ignore[assignment]

    @app.task(max_attempts=1)
    def in_thread() -> int:
        return deeper(0)

    @app.task(max_attempts=1)
    async def in_loop() -> int:
        return await adeeper(0)

    @app.task(max_attempts=1)
    async def through_c() -> bool:
        return Deep() == Deep()

    @app.task
    async def good(n: int) -> int:
        return n

    bad = [task.enqueue() for task in (in_thread, in_loop, through_c) for _ in range(3)]
    fine = [good.enqueue(n) for n in range(20)]
    assert work(app, concurrency=2) == 29
    for job in bad:
        assert job.refresh().state == "failed"
        assert "RecursionError" in str(job.refresh().error)
    assert [job.result() for job in fine] == list(range(20))

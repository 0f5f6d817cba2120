"""A job that enqueues itself again under its own unique key goes on, and its key is held without a gap."""

from __future__ import annotations

from typing import Any

import pytest

from windlass import Attempt, Continue, Unique, Windlass


def work(app: Windlass) -> None:
    app.run_worker(until_idle=True, concurrency=5)


@pytest.mark.parametrize("kind", ["sync", "async", "continue", "many"])
@pytest.mark.parametrize(
    "key", ["loop", Unique("loop"), Unique("loop", on_conflict="raise")], ids=["text", "keep", "raise"]
)
def test_a_loop_under_its_own_key_does_not_end(app: Windlass, kind: str, key: str | Unique) -> None:
    turns: list[int] = []
    created: list[bool] = []

    @app.task("loop", max_attempts=1)
    def in_thread(attempt: Attempt, n: int) -> None:
        turns.append(n)
        with attempt.transaction():
            if n < 5:
                created.append(in_thread.using(unique=key).enqueue(n + 1).created)

    @app.task("aloop", max_attempts=1)
    async def in_loop(attempt: Attempt, n: int) -> None:
        turns.append(n)
        async with attempt.transaction() as connection:
            if n < 5:
                created.append((await in_loop.using(unique=key, connection=connection).aenqueue(n + 1)).created)

    @app.task("chain", max_attempts=1)
    def chain(n: int) -> Continue | None:
        turns.append(n)
        return Continue(chain.using(unique=key).call(n + 1)) if n < 5 else None

    @app.task("many", max_attempts=1)
    def many(attempt: Attempt, n: int) -> None:
        turns.append(n)
        with attempt.transaction():
            if n < 5:
                calls = [many.using(unique=key).call(n + 1), other.call()]
                created.append(app.enqueue_many(calls)[0].created)

    @app.task("other")
    def other() -> None: ...

    tasks: dict[str, Any] = {"sync": in_thread, "async": in_loop, "continue": chain, "many": many}
    tasks[kind].using(unique=key).enqueue(1)
    work(app)
    assert turns == [1, 2, 3, 4, 5]
    assert all(created)
    assert (app.counts().pending, app.counts().failed, app.counts().running) == (0, 0, 0)


def test_a_block_that_is_rolled_back_gives_the_key_back(app: Windlass) -> None:
    seen: list[bool] = []

    @app.task(max_attempts=1)
    def again(attempt: Attempt) -> None:
        try:
            with attempt.transaction():
                seen.append(again.using(unique="key").enqueue().created)
                raise RuntimeError("undone")
        except RuntimeError:
            answer = again.using(unique="key").enqueue()
            seen.append(answer.created)
            assert answer.id == attempt.job.id

    again.using(unique="key").enqueue()
    work(app)
    assert seen == [True, False]
    assert dict(app.counts())["completed"] == app.counts().total == 1


def test_of_two_in_one_block_the_second_finds_the_first(app: Windlass) -> None:
    answers: list[tuple[bool, bool]] = []

    @app.task(max_attempts=1)
    def again(attempt: Attempt, n: int) -> None:
        with attempt.transaction():
            if n == 1:
                first = again.using(unique="key", delay="1h").enqueue(2)
                second = again.using(unique="key", delay="1h").enqueue(3)
                answers.append((first.created, second.id == first.id))

    again.using(unique="key").enqueue(1)
    work(app)
    assert answers == [(True, True)]
    assert app.counts().pending == 1


def test_another_jobs_key_still_counts_in_a_block(app: Windlass) -> None:
    waiting = app.enqueue("elsewhere", unique=Unique("key", scope="app"), delay="1h")
    answers: list[bool] = []

    @app.task(max_attempts=1)
    def again(attempt: Attempt) -> None:
        with attempt.transaction():
            answers.append(again.using(unique=Unique("key", scope="app")).enqueue().id == waiting.id)

    again.using(unique="key").enqueue()
    work(app)
    assert answers == [True]


def test_outside_of_a_block_the_running_job_has_its_key(app: Windlass) -> None:
    answers: list[bool] = []

    @app.task(max_attempts=1)
    def again(attempt: Attempt) -> None:
        answers.append(again.using(unique="key").enqueue().id == attempt.job.id)

    again.using(unique="key").enqueue()
    work(app)
    assert answers == [True]


def test_two_tasks_may_use_the_same_key(app: Windlass) -> None:
    @app.task
    def one() -> None: ...

    @app.task
    def two() -> None: ...

    assert one.using(unique="42").enqueue().created
    assert two.using(unique="42").enqueue().created
    assert not two.using(unique="42").enqueue().created
    assert two.using(unique=Unique("42", scope="app")).enqueue().created
    assert not one.using(unique=Unique("42", scope="app")).enqueue().created

"""`Unique(…, on_conflict="replace", max_wait=…)`: put off as long as more comes, but not for ever."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.api.either import Either
from windlass import InvalidInput, Unique, Windlass


def debounce(max_wait: Any = "1m") -> Unique:
    return Unique("index", until="claimed", on_conflict="replace", max_wait=max_wait)


async def test_it_runs_at_the_latest_so_long_after_it_was_first_enqueued(app: Windlass, either: Either) -> None:
    first = await either.enqueue("index", {"n": 0}, unique=debounce(), delay="25s")
    for number in range(1, 5):
        app.store.clock.move(timedelta(seconds=16))
        if attempts := await either.claim():
            break
        await either.enqueue("index", {"n": number}, unique=debounce(), delay="25s")
    assert [attempt.job.id for attempt in attempts] == [first.id]
    assert attempts[0].job.input == {"n": 3}
    assert attempts[0].job.run_at == first.created_at + timedelta(minutes=1)


async def test_the_first_waits_no_longer_either(app: Windlass, either: Either) -> None:
    job = await either.enqueue("index", {}, unique=debounce(), delay="1h")
    assert job.run_at - job.created_at == timedelta(minutes=1)


@pytest.mark.parametrize("max_wait", [timedelta(minutes=1), 60, "PT1M"])
async def test_durations_as_everywhere(app: Windlass, either: Either, max_wait: Any) -> None:
    job = await either.enqueue("index", {}, unique=debounce(max_wait), delay="1h")
    assert job.run_at - job.created_at == timedelta(minutes=1)


@pytest.mark.parametrize("max_wait", [0, -1, "soon", object()])
def test_a_length_that_is_none_is_refused(max_wait: Any) -> None:
    with pytest.raises(InvalidInput):
        debounce(max_wait)


def test_without_replace_it_has_no_meaning() -> None:
    with pytest.raises(InvalidInput, match="replace"):
        Unique("index", until="claimed", max_wait="1m")


async def test_with_a_fixed_time_it_is_refused(app: Windlass, either: Either) -> None:
    with pytest.raises(InvalidInput, match="delay="):
        await either.enqueue("index", {}, unique=debounce(), run_at=datetime(2050, 1, 1, tzinfo=UTC))
    assert (await either.counts()).total == 0

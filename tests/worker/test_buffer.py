"""When what lies ready is given back: where the jobs that run are long, not where everything stands still."""

from __future__ import annotations

from typing import Any, cast

import pytest

from windlass.worker.bell import Bell
from windlass.worker.buffer import LONGEST_LOOK, STALE_SECONDS, Buffer
from windlass.worker.ledger import Ledger


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("windlass.worker.buffer.time", clock)
    return clock


def ready() -> list[Any]:
    return [1, 2, 3]


def looks(buffer: Buffer, clock: Clock, seconds: list[float], *, is_full: bool = False) -> list[int]:
    """How many are given back at each look, so long after the one before."""
    given = []
    for pause in seconds:
        clock.now += pause
        buffer.ledger.is_full = is_full
        given.append(len(buffer.stale()))
    return given


async def test_what_lies_while_slots_are_busy_is_given_back(clock: Clock) -> None:
    buffer = Buffer(Ledger(2), Bell())
    looks(buffer, clock, [0.0])
    buffer.put(ready())
    assert looks(buffer, clock, [LONGEST_LOOK, STALE_SECONDS - LONGEST_LOOK]) == [0, 3]


async def test_a_claim_that_took_long_does_not_count_as_lying_here(clock: Clock) -> None:
    buffer = Buffer(Ledger(2), Bell())
    looks(buffer, clock, [0.0])
    clock.now += 10
    buffer.put(ready())
    assert looks(buffer, clock, [0.0]) == [0], "they have just come"


async def test_a_process_that_stood_still_gives_its_slots_time_to_ask(clock: Clock) -> None:
    buffer = Buffer(Ledger(2), Bell())
    looks(buffer, clock, [0.0])
    buffer.put(ready())
    assert looks(buffer, clock, [0.1, 10.0]) == [0, 0]
    assert cast("Any", buffer.pop()) == 1
    assert looks(buffer, clock, [0.5, 0.4, 0.4]) == [0, 0, 0]
    assert looks(buffer, clock, [0.4]) == [2]


async def test_what_the_store_holds_up_is_not_given_back(clock: Clock) -> None:
    buffer = Buffer(Ledger(2), Bell())
    buffer.put(ready())
    assert looks(buffer, clock, [0.5] * 10, is_full=True) == [0] * 10
    assert looks(buffer, clock, [0.1]) == [0], "the slots go on only now"

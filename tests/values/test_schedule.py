"""What is decided when a schedule is due."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from uuid_utils.compat import uuid7

from windlass.conformance.bench import new_job
from windlass.errors import InvalidInput
from windlass.schedule import NO_ID, CatchUp, Schedule, call_json, decide_firing, tick_id

NOON = datetime(2025, 5, 5, 12, tzinfo=UTC)
MINUTE, SECOND = timedelta(minutes=1), timedelta(seconds=1)


def schedule(cron: str = "* * * * *", catch_up: CatchUp = "one", **fields: Any) -> Schedule:
    call = call_json(new_job(id=NO_ID, **fields))
    return Schedule(name="s", cron=cron, catch_up=catch_up, call=call, next_at=NOON)


def made(due: Schedule, now: datetime, since: datetime | None = None) -> list[datetime | None]:
    return [job.run_at for job in decide_firing(due, now, since).jobs]


def test_one_for_all_that_was_missed() -> None:
    assert made(schedule(), NOON) == [NOON]
    assert made(schedule(), NOON + 90 * SECOND) == [NOON + MINUTE]
    firing = decide_firing(schedule(), NOON + timedelta(days=400, seconds=1))
    assert [job.run_at for job in firing.jobs] == [firing.last_at] == [NOON + timedelta(days=400)]
    assert firing.next_at == NOON + timedelta(days=400, minutes=1)


def test_skip_drops_missed_ticks_and_keeps_late_ones() -> None:
    assert made(schedule(catch_up="skip"), NOON + 9 * SECOND) == [NOON]
    assert made(schedule(catch_up="skip"), NOON + MINUTE + 2 * SECOND) == [NOON + MINUTE]
    firing = decide_firing(schedule(catch_up="skip"), NOON + 30 * SECOND)
    assert (firing.jobs, firing.last_at, firing.due_at, firing.next_at) == ([], None, NOON, NOON + MINUTE)


def test_all_in_pages() -> None:
    firing = decide_firing(schedule(catch_up="all"), NOON + 1000 * MINUTE)
    assert len(firing.jobs) == 100
    assert (firing.last_at, firing.next_at) == (NOON + 99 * MINUTE, NOON + 100 * MINUTE)
    large = decide_firing(schedule(catch_up="all", input=f'"{"x" * 1_000_000}"'), NOON + 1000 * MINUTE)
    assert len(large.jobs) == 4


@pytest.mark.parametrize("catch_up", ["skip", "one", "all"])
def test_a_scheduler_that_was_there_all_the_time_makes_all_that_fell_due(catch_up: CatchUp) -> None:
    """It was slow, or the server was: nothing was missed."""
    due = schedule("@every 1s", catch_up)
    assert made(due, NOON + 3.5 * SECOND, NOON - 0.1 * SECOND) == [NOON + number * SECOND for number in range(4)]


def test_a_scheduler_that_slept_for_long_has_missed_the_ticks_meanwhile() -> None:
    due = schedule("@every 20s")
    assert made(due, NOON + 65 * SECOND, NOON - SECOND) == [NOON + 60 * SECOND]
    assert made(due, NOON + 75 * SECOND, NOON - SECOND) == [NOON + 60 * SECOND]


def test_a_tick_that_is_none_by_our_tables_is_fired_all_the_same() -> None:
    """Timezones change by law, and not on all machines at once."""
    odd = msgspec.structs.replace(schedule(), next_at=NOON + 30 * SECOND)
    for catch_up in ("one", "all"):
        due = msgspec.structs.replace(odd, catch_up=catch_up)
        assert made(due, NOON + 40 * SECOND) == [NOON + 30 * SECOND]


def test_each_tick_has_an_id_of_its_own_in_order_of_time() -> None:
    ids = [tick_id("s", NOON + number * SECOND) for number in range(100)]
    assert ids == sorted(set(ids))
    assert tick_id("s", NOON) == ids[0] != tick_id("other", NOON)
    assert all((id.version, id.variant) == (7, uuid7().variant) for id in ids)
    assert [job.id for job in decide_firing(schedule(), NOON).jobs] == [ids[0]]


def test_next_runs_are_in_the_timezone_of_the_schedule() -> None:
    berlin = Schedule(name="s", cron="30 2 * * *", timezone="Europe/Berlin", call="{}", next_at=NOON)
    spring = msgspec.structs.replace(berlin, next_at=datetime(2025, 3, 29, 1, 30, tzinfo=UTC))
    assert [run.strftime("%d %H:%M") for run in spring.next_runs] == [
        *("29 02:30", "30 03:00", "31 02:30", "01 02:30", "02 02:30"),
    ]
    assert msgspec.structs.replace(spring, paused_at=NOON).next_runs == ()


def test_a_call_that_cannot_be_read_is_said_to_be_so() -> None:
    with pytest.raises(InvalidInput, match="'s'"):
        decide_firing(Schedule(name="s", cron="* * * * *", call='{"no": 1}', next_at=NOON), NOON)

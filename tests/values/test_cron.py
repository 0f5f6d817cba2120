"""Cron lines: which moments they mean, also where clocks are moved, and what is refused."""

from __future__ import annotations

from bisect import bisect_right
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from random import Random

import pytest

from windlass.cron import SHORT, read_cron, read_zone
from windlass.errors import InvalidInput

START, END = datetime(2025, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC)
# (zone, the day that lacks an hour, the day that has one twice, the hour)
MOVED = [
    ("Europe/Berlin", datetime(2025, 3, 30, tzinfo=UTC), datetime(2025, 10, 26, tzinfo=UTC), 2),
    ("America/New_York", datetime(2025, 3, 9, 12, tzinfo=UTC), datetime(2025, 11, 2, 12, tzinfo=UTC), 1),
]


def ticks(line: str, zone: str = "UTC", start: datetime = START, end: datetime = END) -> list[datetime]:
    return read_cron(line, zone).between(start, end, 1_000_000)


@pytest.mark.parametrize(("zone", "spring", "autumn", "twice"), MOVED)
def test_a_fixed_local_time_is_due_once_on_each_day(zone: str, spring: datetime, autumn: datetime, twice: int) -> None:
    where = read_zone(zone)
    for line in ("30 2 * * *", f"30 {twice} * * *", "0 3 * * *", "59 1 * * *"):
        days = [tick.astimezone(where).date() for tick in ticks(line, zone)]
        assert len(days) == len(set(days)) == 365
    # Where half past two is not there, it is due when the clocks have been moved.
    (missing,) = [tick for tick in ticks("30 2 * * *", zone) if tick.astimezone(where).date() == spring.date()]
    assert missing.astimezone(where).strftime("%H:%M") == "03:00"
    (doubled,) = [tick for tick in ticks(f"30 {twice} * * *", zone) if tick.astimezone(where).date() == autumn.date()]
    assert doubled.astimezone(where).fold == 0


@pytest.mark.parametrize(("zone", "spring", "autumn", "twice"), MOVED)
def test_a_line_with_a_star_keeps_its_interval(zone: str, spring: datetime, autumn: datetime, twice: int) -> None:
    for day in (spring, autumn):
        for line, minutes in (("*/5 * * * *", 5), ("0 * * * *", 60), ("@hourly", 60)):
            found = ticks(line, zone, day - timedelta(days=1), day + timedelta(days=1))
            gaps = {later - earlier for earlier, later in pairwise(found)}
            assert gaps == {timedelta(minutes=minutes)}


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York", "America/Havana", "Asia/Kathmandu", "UTC"])
@pytest.mark.parametrize(
    "line", ["30 2 * * *", "*/20 2 * * *", "0,30 1-3 * * *", "7 */2 * * *", "15 2 * * 0", "@weekly"]
)
def test_the_ticks_are_the_same_for_all_who_ask_at_any_time(line: str, zone: str) -> None:
    cron, every, random = read_cron(line, zone), ticks(line, zone), Random(line + zone)
    moments = [START + timedelta(seconds=random.randrange(364 * 86_400)) for _ in range(50)]
    for moved in ("2025-03-09 06:00", "2025-03-30 00:00", "2025-10-26 00:00", "2025-11-02 04:00"):
        around = datetime.fromisoformat(moved).replace(tzinfo=UTC)
        moments += [around + timedelta(seconds=random.randrange(-7200, 14_400)) for _ in range(50)]
    for moment in [*moments, every[7]]:
        place = bisect_right(every, moment)
        if place < len(every):
            assert cron.after(moment) == every[place]
        assert cron.last(moment, START) == (every[place - 1] if place else None)


def test_last_looks_no_further_back_than_asked() -> None:
    cron, noon = read_cron("0 3 * * *"), datetime(2025, 5, 5, 12, tzinfo=UTC)
    three = noon - timedelta(hours=9)
    assert cron.last(noon, three) is None
    assert cron.last(noon, three - timedelta(seconds=1)) == three
    assert cron.last(three, three - timedelta(days=5)) == three


@pytest.mark.parametrize("line", SHORT)
def test_short_forms(line: str) -> None:
    assert ticks(line) == ticks(SHORT[line])


def test_intervals_are_counted_from_one_moment_for_all() -> None:
    found = ticks("@every 90s", "Europe/Berlin", START, START + timedelta(hours=1))
    assert found[0] == START + timedelta(seconds=90)
    assert len(found) == 40
    assert read_cron("@every 1h30m").after(START + timedelta(minutes=100)) == START + timedelta(hours=3)
    assert read_cron("@every PT1.5S").after(START) == START + timedelta(seconds=1.5)


def test_names_are_known_and_sunday_is_0_and_7() -> None:
    assert ticks("0 0 * * 0") == ticks("0 0 * * 7") == ticks("0 0 * * sun")
    assert ticks("0 0 1 jan *", start=START - timedelta(days=1)) == [START, END]


@pytest.mark.parametrize(
    "line",
    [
        *("", " ", "* * * *", "* * * * * *", "61 * * * *", "* 24 * * *", "x * * * *", "@often", "@daily 3", "@every"),
        *("@every soon", "@every 0", "@every 0.5s", "@every 1.0001s", "@every -1s", "5#2/2 * * * *", "1-0 * * * *"),
        *("* " * 200, None, 5, ["* * * * *"], "0 0 * * 5#9"),
    ],
)
def test_a_line_that_is_not_cron_is_refused(line: object) -> None:
    with pytest.raises(InvalidInput):
        read_cron(line)  # type: ignore[arg-type]


@pytest.mark.parametrize("line", ["0 0 30 2 *", "0 0 31 2,4,6,9,11 *", "0 0 31 feb *"])
def test_a_line_that_is_never_due_is_refused(line: str) -> None:
    with pytest.raises(InvalidInput, match="never due"):
        read_cron(line)


@pytest.mark.parametrize(
    "zone", ["Mars/Phobos", "", "../etc/passwd", "/etc/passwd", "Europe", "Europe/Berlin\0", None, 3]
)
def test_an_unknown_timezone_is_refused(zone: object) -> None:
    with pytest.raises(InvalidInput, match="timezone"):
        read_cron("* * * * *", zone)  # type: ignore[arg-type]

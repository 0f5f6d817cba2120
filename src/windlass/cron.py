"""When a schedule is due: cron lines of five fields, `@daily` and the like, `@every 90s`.

Which moments a line means depends on the line and its timezone alone, not on who asks or since when: all schedulers
agree on them. Where clocks are moved, a line with a fixed hour and minute is due once on that day (where its time does
not exist, as soon as there is one again), and one with a star in either keeps its interval.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from itertools import islice
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from .clock import EPOCH
from .duration import to_timedelta
from .errors import InvalidInput

SHORT = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
LONGEST_LINE = 200
SECOND, MILLISECOND = timedelta(seconds=1), timedelta(milliseconds=1)
ACCEPTED = f"five fields (minute, hour, day, month, weekday), one of {', '.join(SHORT)}, or @every and a duration"


class Cron:
    """The ticks of one line in one timezone. Moments come out in UTC."""

    def after(self, moment: datetime) -> datetime:
        """The first tick after that moment. `InvalidInput` where there is none."""
        raise NotImplementedError

    def following(self, moment: datetime) -> Iterator[datetime]:
        while True:
            moment = self.after(moment)
            yield moment

    def between(self, after: datetime, until: datetime, limit: int) -> list[datetime]:
        """The ticks after one moment and not after the other, the first `limit` of them."""
        found = []
        for tick in islice(self.following(after), limit):
            if tick > until:
                break
            found.append(tick)
        return found

    def last(self, until: datetime, since: datetime) -> datetime | None:
        """The last tick after `since` and not after `until`: looked for from the end, since a year has many."""
        length = timedelta(hours=1)
        while True:
            start = max(until - length, since)
            tick = self.after(start)
            if tick <= until:
                return self.between(start, until, 1_000_000)[-1]
            if start == since:
                return None
            length *= 2


class Lines(Cron):
    def __init__(self, line: str, zone: tzinfo) -> None:
        self.line, self.zone = line, zone

    def after(self, moment: datetime) -> datetime:
        # From an hour that comes twice it may lead back into the first of the two.
        for tick in CronSim(self.line, moment.astimezone(self.zone)):
            if tick > moment:
                return tick.astimezone(UTC)
        raise InvalidInput(f"the cron line {self.line!r} is never due")


class Every(Cron):
    """Multiples of a length, counted from 1970, so that nobody need remember when it began."""

    def __init__(self, length: timedelta) -> None:
        self.length = length

    def after(self, moment: datetime) -> datetime:
        return EPOCH + ((moment - EPOCH) // self.length + 1) * self.length


def read_cron(line: str, timezone: str = "UTC") -> Cron:
    """`InvalidInput` for a line that cannot be read or is never due, and for a timezone that nobody knows."""
    if not isinstance(line, str) or not line.strip() or len(line) > LONGEST_LINE:
        raise InvalidInput(f"{line!r:.60} is no cron line: {ACCEPTED}")
    if not isinstance(timezone, str):
        raise InvalidInput(f"timezone is a name, as in Europe/Berlin, not {timezone!r:.60}")
    return _read(line, timezone)


@lru_cache(maxsize=1000)
def _read(line: str, timezone: str) -> Cron:
    zone = read_zone(timezone)
    word, _, rest = line.strip().partition(" ")
    if word == "@every":
        return Every(_interval(line, rest))
    if word.startswith("@") and (rest or word not in SHORT):
        raise InvalidInput(f"{line!r} is no cron line: {ACCEPTED}")
    cron = Lines(SHORT.get(word, line.strip()), zone)
    if len(cron.line.split()) != 5:
        raise InvalidInput(f"{line!r} is no cron line: {ACCEPTED}")
    try:
        cron.after(EPOCH)
    except (CronSimError, AssertionError, ValueError) as error:
        raise InvalidInput(f"the cron line {line!r} cannot be read, or is never due: {error or 'bad field'}") from None
    return cron


def _interval(line: str, text: str) -> timedelta:
    try:
        length = to_timedelta(text)
    except InvalidInput as error:
        raise InvalidInput(f"{line!r}: after @every comes a duration; {error}") from None
    if length < SECOND or length % MILLISECOND:
        raise InvalidInput(f"{line!r}: an interval is a second or longer, in whole milliseconds")
    return length


def read_zone(name: str) -> tzinfo:
    if name == "UTC":  # known also where there is no database of timezones
        return UTC
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, LookupError):
        raise InvalidInput(
            f"there is no timezone {name!r:.60}: names are those of the IANA database, as in Europe/Berlin "
            "(a system without that database needs: pip install tzdata)"
        ) from None

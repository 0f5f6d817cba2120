"""When a schedule is due: cron lines of five fields, `@daily` and the like, `@every 90s`.

The ticks of a line depend only on the line and its timezone, so all schedulers agree on them. On a day when the clocks
change, a line with a fixed hour and minute is due once. If its time is skipped on that day, it is due right after the
gap. A line with a star in the hour or the minute keeps its interval.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
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
ACCEPTED = f"give five fields (minute, hour, day, month, weekday), one of {', '.join(SHORT)}, or @every and a duration"


class Cron(ABC):
    """The ticks of one line in one timezone. All ticks are in UTC."""

    @abstractmethod
    def after(self, moment: datetime) -> datetime:
        """The first tick after this moment. `InvalidInput` if there is none."""

    def following(self, moment: datetime) -> Iterator[datetime]:
        while True:
            moment = self.after(moment)
            yield moment

    def between(self, after: datetime, until: datetime, limit: int) -> list[datetime]:
        """The first `limit` ticks that are later than `after` and not later than `until`."""
        found = []
        for tick in islice(self.following(after), limit):
            if tick > until:
                break
            found.append(tick)
        return found

    def last(self, until: datetime, since: datetime) -> datetime | None:
        """The last tick that is later than `since` and not later than `until`.

        The search starts at the end, because a year may have very many ticks.
        """
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
        # In an hour that the clocks repeat, CronSim may return a tick of the first of the two.
        for tick in CronSim(self.line, moment.astimezone(self.zone)):
            if tick > moment:
                return tick.astimezone(UTC)
        raise InvalidInput(f"the cron line {self.line!r} is never due; check its day and month")


class Every(Cron):
    """Multiples of an interval, counted from 1970, so that no store has to keep a start time."""

    def __init__(self, length: timedelta) -> None:
        self.length = length

    def after(self, moment: datetime) -> datetime:
        return EPOCH + ((moment - EPOCH) // self.length + 1) * self.length


def read_cron(line: str, timezone: str = "UTC") -> Cron:
    """Read a cron line. `InvalidInput` if it is not valid, if it is never due, or if the timezone is unknown."""
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
        raise InvalidInput(f"{line!r}: an interval must be at least a second, in whole milliseconds")
    return length


def read_zone(name: str) -> tzinfo:
    if name == "UTC":  # it works also on a system without the timezone database
        return UTC
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, LookupError):
        raise InvalidInput(
            f"there is no timezone {name!r:.60}: names are those of the IANA database, as in Europe/Berlin "
            "(a system without that database needs: pip install tzdata)"
        ) from None

"""Durations: a timedelta, seconds, "1h30m" or ISO 8601 "PT1H30M". And delays that grow from one try to the next."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Iterator
from datetime import timedelta
from typing import TypeAlias

from .errors import InvalidInput

Duration: TypeAlias = timedelta | int | float | str

# Longer than any sensible wait, and short enough that every store can add it to its clock.
LONGEST = timedelta(days=365_250)

_ACCEPTED = (
    'a duration is a timedelta, a number of seconds, text such as "90", "250ms", "10m", "1h30m", "7d", "2w", '
    'or ISO 8601 such as "PT10M"; not negative, at most 1000 years'
)

_NUMBER = r"[0-9]+(?:[.,][0-9]+)?"


def _unit(name: str, suffix: str) -> str:
    return rf"(?:(?P<{name}>{_NUMBER}){suffix})?\s*"


_SECONDS = re.compile(_NUMBER)
_SHORT = re.compile(
    _unit("weeks", "w")
    + _unit("days", "d")
    + _unit("hours", "h")
    + _unit("minutes", "m(?!s)")
    + _unit("seconds", "s")
    + _unit("milliseconds", "ms")
)
_ISO = re.compile(
    "P"
    + _unit("weeks", "W")
    + _unit("days", "D")
    + r"(?:T(?=[0-9])"
    + _unit("hours", "H")
    + _unit("minutes", "M")
    + _unit("seconds", "S")
    + ")?"
)
_ISO_WITH_YEARS_OR_MONTHS = re.compile(r"P[^T]*[YM]")


def to_timedelta(value: Duration) -> timedelta:
    """Return the duration as a timedelta. `InvalidInput` if it is no duration, negative or too long."""
    try:
        length = _convert(value)
    except (OverflowError, ValueError):
        raise _refusal(value) from None
    if not timedelta(0) <= length <= LONGEST:
        raise _refusal(value)
    return length


def to_seconds(value: Duration) -> float:
    """Return the duration in seconds."""
    return to_timedelta(value).total_seconds()


def _convert(value: object) -> timedelta:
    if isinstance(value, timedelta):
        return value
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return timedelta(seconds=value)
    if isinstance(value, str):
        return _parse(value.strip())
    raise _refusal(value)


def _parse(text: str) -> timedelta:
    if _SECONDS.fullmatch(text):
        return timedelta(seconds=_number(text))
    if _ISO_WITH_YEARS_OR_MONTHS.match(text):
        raise _refusal(text, "years and months have no fixed length")
    match = (_ISO if text.startswith("P") else _SHORT).fullmatch(text)
    units = {unit: _number(amount) for unit, amount in match.groupdict().items() if amount} if match else {}
    if not units:
        raise _refusal(text)
    return timedelta(**units)


def _number(text: str) -> float:
    number = float(text.replace(",", "."))
    if math.isinf(number):
        raise OverflowError
    return number


def _refusal(value: object, reason: str = "not a duration") -> InvalidInput:
    try:
        shown = f"{value!r:.60}"
    except Exception:  # Python refuses to print an integer of 5,000 digits
        shown = f"this {type(value).__name__}"
    return InvalidInput(f"{shown}: {reason}; {_ACCEPTED}")


class Delays(Iterator[float]):
    """Seconds: `first`, then `factor` times as long each time, at most `longest`. `reset()` begins again.

    `jitter=(0.5, 1.5)` multiplies each delay by a number of that range, so that many clients do not retry in step.
    """

    def __init__(
        self, first: float, longest: float, *, factor: float = 2.0, jitter: tuple[float, float] | None = None
    ) -> None:
        self.first, self.longest, self.factor, self.jitter = first, longest, factor, jitter
        self._next = first

    def __next__(self) -> float:
        seconds, self._next = self._next, min(self._next * self.factor, self.longest)
        return seconds if self.jitter is None else seconds * random.uniform(*self.jitter)

    def reset(self) -> None:
        self._next = self.first

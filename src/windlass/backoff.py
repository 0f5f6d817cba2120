"""Backoffs: how long a job waits after a failed attempt. They are plain values, stored in the row as JSON.

`attempt` is the number of the attempt that has just failed. The first is 1.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeAlias

from .duration import Duration, to_seconds, to_timedelta
from .errors import InvalidInput

LONGEST_WAIT = timedelta(days=3650)


@dataclass(frozen=True, init=False)
class Fixed:
    """The same delay after every attempt."""

    interval: timedelta

    def __init__(self, delay: Duration) -> None:
        object.__setattr__(self, "interval", to_timedelta(delay))

    def delay(self, attempt: int, random: Callable[[], float]) -> timedelta:
        return self.interval


@dataclass(frozen=True)
class Polynomial:
    """`base * attempt ** power`: with power 2, 10 s, 40 s, 90 s, …"""

    base: Duration = "10s"
    power: float = 2

    def __post_init__(self) -> None:
        object.__setattr__(self, "base", to_timedelta(self.base))
        power: object = self.power
        if isinstance(power, bool) or not isinstance(power, (int, float)) or not (0 <= power < math.inf):
            raise InvalidInput(f"the power of a polynomial backoff is a number, 0 or more, not {power!r}")

    def delay(self, attempt: int, random: Callable[[], float]) -> timedelta:
        try:
            seconds = to_seconds(self.base) * float(max(attempt, 1)) ** self.power
        except OverflowError:
            return LONGEST_WAIT if to_seconds(self.base) else timedelta(0)
        return timedelta(seconds=min(seconds, LONGEST_WAIT.total_seconds()))


@dataclass(frozen=True)
class Exponential:
    """`base`, doubled with each attempt, at most `cap`. With jitter: a random delay between half of that and all of
    it."""

    base: Duration = "1s"
    cap: Duration = "5m"
    jitter: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "base", to_timedelta(self.base))
        object.__setattr__(self, "cap", to_timedelta(self.cap))
        if not isinstance(self.jitter, bool):
            raise InvalidInput(f"the jitter of an exponential backoff is True or False, not {self.jitter!r}")

    def delay(self, attempt: int, random: Callable[[], float]) -> timedelta:
        # Every base but 0 exceeds every cap long before 2**200, and a float can hold 2**200.
        doublings = min(max(attempt, 1) - 1, 200)
        seconds = min(to_seconds(self.cap), to_seconds(self.base) * 2.0**doublings)
        return timedelta(seconds=seconds * (0.5 + 0.5 * random()) if self.jitter else seconds)


Backoff: TypeAlias = Fixed | Polynomial | Exponential

DEFAULT_BACKOFF: Backoff = Exponential()


def as_backoff(value: Backoff | Duration) -> Backoff:
    """Return the backoff. A plain duration means `Fixed`."""
    return value if isinstance(value, (Fixed, Polynomial, Exponential)) else Fixed(value)


def to_json(backoff: Backoff) -> dict[str, Any]:
    """The backoff as the row keeps it, in seconds."""
    match backoff:
        case Fixed(interval=interval):
            return {"kind": "fixed", "delay": to_seconds(interval)}
        case Polynomial(base=base, power=power):
            return {"kind": "polynomial", "base": to_seconds(base), "power": power}
        case Exponential(base=base, cap=cap, jitter=jitter):
            return {"kind": "exponential", "base": to_seconds(base), "cap": to_seconds(cap), "jitter": jitter}


def from_json(object: object) -> Backoff:
    """Read the backoff of a row. An invalid value gives the default, because a rescue must not stop at one bad row."""
    try:
        match object:
            case {"kind": "fixed", "delay": delay}:
                return Fixed(delay)
            case {"kind": "polynomial", "base": base, "power": power}:
                return Polynomial(base, power)
            case {"kind": "exponential", "base": base, "cap": cap, "jitter": jitter}:
                return Exponential(base, cap, jitter)
    except InvalidInput:
        pass
    return DEFAULT_BACKOFF

"""Time as the store tells it.

The store's own clock decides what is due and what has expired; no worker's clock ever does. A test moves that clock
by giving the store a `Clock` with an offset, which each store adds to its `now()`.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta


class Clock:
    """How far the queue's time is ahead of the store's. Zero outside tests."""

    __slots__ = ("offset",)

    def __init__(self) -> None:
        self.offset = timedelta()

    def move(self, by: timedelta) -> None:
        """Let that much time pass."""
        self.offset += by


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)


def to_microseconds(moment: datetime) -> int:
    """Whole microseconds since 1970, exact for every year that a datetime can hold."""
    return (moment - EPOCH) // MICROSECOND


def from_microseconds(count: int) -> datetime:
    return EPOCH + timedelta(microseconds=count)

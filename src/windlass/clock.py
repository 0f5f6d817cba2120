"""The queue's clock.

The store's clock decides which jobs are due and which leases have expired. A worker's clock never does. A test can
give the store a `Clock` with an offset. Each store adds that offset to its `now()`.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta


class Clock:
    """The offset of the queue's time from the store's time. It is zero outside tests."""

    __slots__ = ("offset",)

    def __init__(self) -> None:
        self.offset = timedelta()

    def move(self, by: timedelta) -> None:
        """Move the queue's time forward."""
        self.offset += by


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)


def to_microseconds(moment: datetime) -> int:
    """Whole microseconds since 1970, exact for every year that a datetime can hold."""
    return (moment - EPOCH) // MICROSECOND


def from_microseconds(count: int) -> datetime:
    return EPOCH + timedelta(microseconds=count)

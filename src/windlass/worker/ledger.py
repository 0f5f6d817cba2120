"""The ledger: every limit of a worker, in one place.

A worker has slots, a limit for some queues, perhaps a number of jobs after which it ends, a bound on jobs that it
prefetches, and a bound on outcomes that are not written yet. Each job that the worker holds owns one place here, from
before its claim is sent until its attempt has ended. No I/O, no clock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec

AHEAD_SECONDS = 0.1  # of work that is prefetched
MOST_AHEAD = 2000  # jobs that are prefetched, however short they are
MOST_PER_CLAIM = 1000  # jobs of one claim ahead: with 500, a job cost server and worker a tenth more
BYTES_AHEAD = 16 * 1024 * 1024  # of inputs: while more are here, none is prefetched. A claim may bring as much again
WEIGHT = 0.05  # of the newest duration in the average
UNLIMITED = 1_000_000


class Place(msgspec.Struct, eq=False):
    """The right to hold one job of a queue. Its states: waiting, running, released."""

    _ledger: Ledger | None
    _queue: str
    _running: bool = False
    _bytes: int = 0

    def hold(self, bytes: int) -> None:
        """A job with an input of this size."""
        if self._ledger is not None:
            self._bytes = bytes
            self._ledger.waiting_bytes += bytes

    def start(self) -> None:
        """Its handler is about to be called."""
        ledger = self._ledger
        if ledger is not None and not self._running:
            self._running = True
            ledger.waiting_bytes -= self._bytes
            ledger.waiting -= 1
            ledger.running += 1
            ledger.started += 1

    def release(self) -> None:
        """Only the first call counts."""
        ledger, self._ledger = self._ledger, None
        if ledger is None:
            return
        if self._running:
            ledger.running -= 1
        else:
            ledger.waiting -= 1
            ledger.waiting_bytes -= self._bytes
        if self._queue in ledger.limits:
            ledger.held[self._queue] -= 1


def release(places: Iterable[Place]) -> None:
    for place in places:
        place.release()


class Ledger:
    def __init__(
        self, slots: int, limits: Mapping[str, int | None] | None = None, *, max_jobs: int | None = None,
        unwritten_rows: int = UNLIMITED, unwritten_bytes: int = UNLIMITED**2,
    ) -> None:  # fmt: skip
        self.slots, self.max_jobs = slots, max_jobs
        self.limits = {queue: limit for queue, limit in (limits or {}).items() if limit is not None}
        self.held: Counter[str] = Counter()  # places, of queues that have a limit
        self.waiting = 0  # places whose attempt has not started
        self.waiting_bytes = 0  # of their inputs
        self.running = 0  # places whose attempt runs
        self.started = 0  # attempts, ever
        self.kept_slots = 0  # slots that wait for a last attempt, whatever is prefetched
        self.kept_for: str | None = None  # the queue of these last attempts
        self.look_for_last_at = 0.0  # when it is time to keep a slot for last attempts
        self.average_seconds: float | None = None  # of an attempt, until one has run
        self.is_full = False  # too much waits to be written: nothing is claimed or started
        self._most_rows, self._most_bytes = unwritten_rows, unwritten_bytes
        self._rows = self._bytes = 0

    # Places

    def take(self, queue: str, count: int) -> list[Place]:
        """For a claim that is about to be sent."""
        self.waiting += count
        if queue in self.limits:
            self.held[queue] += count
        return [Place(self, queue) for _ in range(count)]

    @property
    def is_empty(self) -> bool:
        """No job is held, and every outcome is written."""
        return not (self.waiting or self.running or self._rows)

    @property
    def free_slots(self) -> int:
        """Slots for which no job is here yet."""
        return max(0, self.slots - self.running - self.waiting)

    @property
    def all_slots_free(self) -> bool:
        return self.free_slots >= self.slots

    def room_for_slots(self, queue: str | None = None) -> int:
        """How many jobs could start at once: also last attempts, which are never prefetched."""
        kept = self.kept_slots if queue in (None, self.kept_for) else 0
        return min(self.free_slots or kept, self._left(queue))

    def room_ahead(self, queue: str | None = None) -> int:
        """How many jobs may be claimed for the free slots, and ahead once half of the prefetched ones have started."""
        target = self.prefetch_target
        ahead = target - max(0, self.waiting - (self.slots - self.running))
        if self.waiting_bytes > BYTES_AHEAD:
            ahead = 0
        room = self.free_slots + (ahead if ahead * 2 >= target else 0)
        return min(room, self._left(queue), MOST_PER_CLAIM)

    def room(self, queue: str | None = None) -> int:
        """How many jobs may be claimed now, from this queue or from all together."""
        return max(self.room_for_slots(queue), self.room_ahead(queue))

    def _left(self, queue: str | None) -> int:
        if self.is_full:
            return 0
        left = UNLIMITED if self.max_jobs is None else self.max_jobs - self.started - self.waiting
        if queue in self.limits:
            left = min(left, self.limits[queue] - self.held[queue])
        return max(0, left)

    @property
    def reached_max_jobs(self) -> bool:
        return self.max_jobs is not None and self.started >= self.max_jobs

    # Prefetch

    @property
    def prefetch_target(self) -> int:
        if self.average_seconds is None:
            return 0
        return min(MOST_AHEAD, int(self.slots * AHEAD_SECONDS / max(self.average_seconds, 1e-6)))

    def ran(self, seconds: float) -> None:
        average = seconds if self.average_seconds is None else self.average_seconds
        self.average_seconds = average + WEIGHT * (seconds - average)

    def stop_prefetch(self) -> None:
        """Attempts take longer than the average says. Prefetch nothing until some have run."""
        self.average_seconds = 2 * AHEAD_SECONDS * self.slots

    # Backpressure

    def add_unwritten(self, rows: int, bytes: int) -> None:
        """Outcomes that wait to be written; negative numbers when they are written."""
        self._rows += rows
        self._bytes += bytes
        self.is_full = self._rows >= self._most_rows or self._bytes >= self._most_bytes

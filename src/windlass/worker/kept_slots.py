"""Slots that are kept for last attempts. Those are never prefetched, so while all slots are busy they would starve.

One queue at a time: one in which last attempts wait or, from time to time, the one whose turn was the longest time ago.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .buffer import Buffer
from .turn import LAST_ATTEMPTS_SECONDS

if TYPE_CHECKING:
    from .claimer import QueueCursor

SHORTEST_SECONDS = 0.02  # between looks, however many queues there are


class KeptSlots:
    def __init__(self, buffer: Buffer, cursors: dict[str, QueueCursor]) -> None:
        self.buffer, self.ledger, self.cursors = buffer, buffer.ledger, cursors

    def keep(self, now: float) -> None:
        """Choose a queue. The next slots that come free wait for its jobs."""
        cursors = [cursor for cursor in self.cursors.values() if not cursor.stuck]
        if not cursors or self.buffer.is_keeping:
            return
        waiting = [cursor for cursor in cursors if cursor.last_attempts]
        if waiting and now < self.ledger.look_for_last_at:
            chosen = min(waiting, key=lambda cursor: cursor.kept_at)
        else:
            chosen = min(cursors, key=lambda cursor: cursor.slots_served_at)
        chosen.kept_at = now
        self.ledger.kept_for = chosen.queue
        self.buffer.keep_slots(max(1, min(2 * chosen.last_attempts, self.ledger.slots // max(2, len(cursors)))))

    def keep_more(self, now: float) -> None:
        """After a round of claims, if it has found last attempts: more of them may wait."""
        if not self.ledger.free_slots and any(cursor.last_attempts for cursor in self.cursors.values()):
            self.keep(now)

    def is_for(self, queue: str) -> bool:
        return self.ledger.kept_slots > 0 and self.ledger.kept_for == queue

    def looked(self, cursor: QueueCursor, last_attempts: int, now: float) -> None:
        """A claim for slots has found so many last attempts."""
        cursor.slots_served_at, cursor.last_attempts = now, last_attempts
        self.ledger.look_for_last_at = now + max(SHORTEST_SECONDS, LAST_ATTEMPTS_SECONDS / max(1, len(self.cursors)))

    def end_round(self, now: float) -> None:
        """The slots that were kept and got nothing take from the buffer again."""
        cursor = self.cursors.get(self.ledger.kept_for or "")
        if self.ledger.kept_slots and cursor is not None:  # nothing can be claimed there: its limit is reached
            self.looked(cursor, 0, now)
        self.buffer.release_kept()

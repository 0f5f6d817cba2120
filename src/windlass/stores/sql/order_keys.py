"""Order keys in SQL: jobs of one key run one after the other.

A job with an order key has a `lane`: 0 until it is admitted, 1 in the line of its key, 2 at the head. Only a head is
claimed.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...operation import Operation
from .dialect import OrderKey, Part


class OrderKeys(Part):
    def lock(self, keys: Sequence[OrderKey]) -> Operation[None]:
        yield from self.dialect.lock_order_keys(keys)

    def try_lock(self, keys: Sequence[OrderKey]) -> Operation[Sequence[OrderKey]]:
        """The keys that no other transaction has locked: they are locked now."""
        return (yield from self.dialect.try_order_keys(keys))

    def promote(self, keys: Sequence[OrderKey]) -> Operation[set[str]]:
        """Where a key has no head, the job that has waited longest becomes it. The queues of the new heads."""
        if not keys:
            return set()
        rows = yield self.dialect.promote(keys)
        return {row[0] for row in rows}

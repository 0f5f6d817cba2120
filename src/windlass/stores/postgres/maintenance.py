"""Maintenance in PostgreSQL: delete jobs that are no longer kept, fold the counts, vacuum.

History is a ring of day slots, each a partition. A slot whose jobs are all over is emptied by TRUNCATE.
"""

from __future__ import annotations

from ...operation import Operation, Statement
from ..sql.query import Queries
from .placeholders import RING_SLOTS

VACUUMED = ("jobs", "edges", "history", "keys", "tallies", "schedules", "workers", "queues")


class Maintenance:
    def __init__(self, queries: Queries) -> None:
        self.queries = queries

    def prune(self, limit: int) -> Operation[int]:
        yield self.queries.statement("prune_keys", alone=True)
        yield self.queries.statement("prune_edges", alone=True, limit=limit)
        yield self.queries.statement("fold_tallies", alone=True)
        rows = yield self.queries.statement("prune_rows", alone=True, limit=limit)
        gone = int(rows[0][0])
        slots = yield Statement(self.queries.library.made(("prune_slots",), self._all_slots), alone=True)
        for slot, count in slots:
            yield Statement(self.queries.library.variant("empty_slot", number=str(slot)), alone=True)
            ((is_empty,),) = yield self.queries.statement("slot_is_empty", alone=True, slot=slot)
            if is_empty:
                gone += int(count)
            else:
                rows = yield self.queries.statement("prune_slot_rows", alone=True, slot=slot, limit=limit)
                gone += int(rows[0][0])
        return gone

    def _all_slots(self) -> str:
        library = self.queries.library
        each = [library.variant("prune_slots", number=str(number)).statements[0] for number in range(RING_SLOTS)]
        return " UNION ALL ".join(each)

    def vacuum(self) -> Operation[None]:
        for name in VACUUMED:
            query = self.queries.library.made((f"vacuum {name}",), lambda name=name: f"VACUUM {{{name}}}")  # type: ignore[misc]
            yield Statement(query, alone=True, patient=True)

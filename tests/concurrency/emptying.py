"""Making a store empty, quicker than with a new database."""

from __future__ import annotations

from datetime import timedelta

from windlass.operation import Operation, Request, Statement
from windlass.stores.mongodb.base import Base, Hurried
from windlass.stores.sql.store import SqlStore
from windlass.stores.store import Store

TABLES = ("jobs", "history", "keys", "queues", "tallies", "schedules", "edges")
COLLECTIONS = ("jobs", "edges", "keys", "queues", "tallies", "timetable")


def empty(store: Store) -> None:
    """Remove all that is in it, and set its clock back."""
    store.clock.offset = timedelta()
    store.connections.run(lambda: remove_all(store))


def remove_all(store: Store) -> Operation[None]:
    if isinstance(store, SqlStore):
        text = ";\n\n".join(f"DELETE FROM {{{name}}}" for name in TABLES)
        yield Statement(store.sql.made(("empty",), lambda: text))
    elif isinstance(store, Base):
        *others, last = COLLECTIONS
        for name in others:  # the last write waits until a majority has them all
            yield Hurried(getattr(store, name), "delete_many", ({},), alone=True)
        yield Request(getattr(store, last), "delete_many", ({},), alone=True)

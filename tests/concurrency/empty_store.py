"""Making a store empty, quicker than with a new database."""

from __future__ import annotations

from datetime import timedelta

from windlass.operation import Operation, Request, Statement
from windlass.stores.mongodb import MongoStore
from windlass.stores.mongodb.context import Hurried
from windlass.stores.postgres.store import PostgresStore
from windlass.stores.sql.store import SqlStore
from windlass.stores.store import Store

TABLES = ("jobs", "history", "keys", "queues", "tallies", "schedules", "edges")
COLLECTIONS = ("jobs", "edges", "keys", "queues", "tallies", "schedules")

# Deleted rows stay in their pages for a while, and pruning looks at a sample of a slot's pages.
SHORTEN_SLOTS = """
DO $$ BEGIN
    FOR slot IN 0..32 LOOP
        IF pg_relation_size(format('"{schema}"."{prefix}history_%s"', slot)) > 16 * 8192 THEN
            EXECUTE format('TRUNCATE "{schema}"."{prefix}history_%s"', slot);
        END IF;
    END LOOP;
END $$
"""


def empty(store: Store) -> None:
    """Remove all that is in it, and set its clock back."""
    store.clock.offset = timedelta()
    store.connections.run(lambda: remove_all(store))


def remove_all(store: Store) -> Operation[None]:
    with_slots = isinstance(store, PostgresStore)
    if isinstance(store, SqlStore):
        text = ";\n\n".join(f"DELETE FROM {{{name}}}" for name in TABLES)
        yield Statement(store.sql.made(("empty",), lambda: text))
        if with_slots:
            yield Statement(store.sql.made(("shorten",), lambda: SHORTEN_SLOTS))
    elif isinstance(store, MongoStore):
        *others, last = COLLECTIONS
        for name in others:  # the last write waits until a majority has them all
            yield Hurried(getattr(store.context, name), "delete_many", ({},), alone=True)
        yield Request(getattr(store.context, last), "delete_many", ({},), alone=True)

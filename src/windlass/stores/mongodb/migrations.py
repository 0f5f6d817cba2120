"""The schema: indexes, and a collection that records the applied migrations.

To create an index that exists changes nothing, so many processes may migrate at once: the server builds each index
once, and the others wait for it. The process that writes the record reports the migration.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from pymongo import IndexModel

from ...errors import SchemaMismatch
from ...lifecycle import BLOCKED, CANCELLED, COMPLETED, FAILED, PENDING, RUNNING
from ...operation import Operation, Request
from .context import Part
from .documents import HEAD, IN_LINE
from .errors import Duplicate, NoSuchIndex

HINTS_KEPT = 300  # seconds


@dataclass(frozen=True, slots=True)
class Index:
    collection: str
    name: str
    keys: tuple[tuple[str, int], ...]
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Rewriting:
    """A change of documents that changes nothing when it runs again."""

    collection: str
    method: str
    arguments: tuple[Any, ...]

    def at(self, prefix: str) -> Request:
        return Request(prefix + self.collection, self.method, _named(self.arguments, prefix), alone=True)


@dataclass(frozen=True, slots=True)
class Migration:
    """`min_compatible`: the oldest code, by the newest migration that it knows, that can work beside this one.
    First documents are rewritten, then indexes created, then the indexes dropped that they replace."""

    version: int
    name: str
    min_compatible: int
    indexes: tuple[Index, ...]
    rewritings: tuple[Rewriting, ...] = ()
    drops: tuple[tuple[str, str], ...] = ()  # collection and index


def _named(value: Any, prefix: str) -> Any:
    """The value with the names of collections, `{keys}`, filled in."""
    if isinstance(value, dict):
        return {key: _named(inner, prefix) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_named(inner, prefix) for inner in value)
    return f"{prefix}keys" if value == "{keys}" else value


def up(*fields: str) -> tuple[tuple[str, int], ...]:
    return tuple((name, 1) for name in fields)


SCOPED = {"tenant": "$_id.tenant", "key": "$_id.key", "scope": "$type"}
WITHOUT_SCOPE = {"_id.scope": {"$exists": False}}
# In the job of a schedule: JSON without its empty fields, in which other fields follow.
KEPT_BY_DEFAULT = '"keep_seconds":604800,'

MIGRATIONS = (
    Migration(
        1,
        "0001 jobs, keys, tallies, hints",
        1,
        (
            # Claims, in their order; with the state in it, counts and the names of queues need no document.
            Index(
                "jobs",
                "ready",
                up("state", "queue", "rank", "run_at", "_id", "type"),
                {"partialFilterExpression": {"state": PENDING}},
            ),
            # Running jobs by their claim. Finished jobs, newest first; no other job has the field. So a claim removes
            # one key and adds one; so does a settlement. Waiting jobs are found by the ready index or by their id.
            Index("jobs", "running", up("state", "token"), {"partialFilterExpression": {"state": RUNNING}}),
            Index(
                "jobs",
                "finished",
                up("state", "_id"),
                {"partialFilterExpression": {"finished_at": {"$exists": True}}},
            ),
            # Failed and cancelled jobs, the last end first: only these few jobs pay for it.
            *(
                Index("jobs", state, up("state", "finished_at", "_id"), {"partialFilterExpression": {"state": state}})
                for state in (FAILED, CANCELLED)
            ),
            Index("jobs", "blocked", up("state", "queue", "type"), {"partialFilterExpression": {"state": BLOCKED}}),
            # The head of an order key, one at the most; the jobs in its line, in order; arriving jobs.
            Index(
                "jobs",
                "heads",
                up("tenant", "order_key"),
                {"unique": True, "partialFilterExpression": {"lane": HEAD}},
            ),
            Index(
                "jobs",
                "line",
                up("lane", "tenant", "order_key", "place", "arrival"),
                {"partialFilterExpression": {"lane": IN_LINE}},
            ),
            Index(
                "jobs",
                "arriving",
                up("arriving", "due_at", "arrival"),
                {"partialFilterExpression": {"arriving": {"$exists": True}}},
            ),
            # Jobs that have to be started in time, until they are. Two indexes, since a filter of an index knows no
            # "or" before 6.0, and two indexes of the same keys are not allowed before 5.0.
            Index(
                "jobs",
                "expiring",
                up("state", "expires_at"),
                {"partialFilterExpression": {"state": PENDING, "expires_at": {"$exists": True}}},
            ),
            Index(
                "jobs",
                "expiring_blocked",
                up("expires_at", "state"),
                {"partialFilterExpression": {"state": BLOCKED, "expires_at": {"$exists": True}}},
            ),
            Index("jobs", "by_type", up("type", "_id")),
            Index("jobs", "by_tenant", up("tenant", "_id"), {"partialFilterExpression": {"tenant": {"$gt": ""}}}),
            Index(
                "jobs",
                "by_chain",
                up("chain_id", "chain_index"),
                {"unique": True, "partialFilterExpression": {"chain_index": {"$gt": 0}}},
            ),
            Index(
                "jobs",
                "held_keys",
                up("tenant", "unique_key"),
                {"unique": True, "partialFilterExpression": {"unique_held": True}},
            ),
            Index("jobs", "purge", up("purge_at"), {"expireAfterSeconds": 0, "sparse": True}),
            # The chains that each blocked job waits for, in the order given.
            Index("edges", "by_job", up("job", "position"), {"unique": True}),
            Index("edges", "by_chain", up("chain_id"), {"partialFilterExpression": {"done": False}}),
            Index("keys", "ends", up("ends_at"), {"expireAfterSeconds": 0, "sparse": True}),
            Index("keys", "by_job", up("job_id")),
            Index("tallies", "purge", up("purge_at"), {"expireAfterSeconds": 0, "sparse": True}),
            Index("tallies", "raw", up("raw"), {"sparse": True}),
            Index("tallies", "announced", up("since"), {"sparse": True}),
            Index("schedules", "due", up("next_at")),
            Index("hints", "sent", up("sent_at"), {"expireAfterSeconds": HINTS_KEPT}),
        ),
    ),
    # A unique key counts for its job's type; the records of keys that outlive their jobs have that type.
    Migration(
        2,
        "0002 keys by type, dependents",
        2,
        (
            # The jobs that wait, or have waited, for a chain.
            Index("edges", "dependents", up("chain_id", "job")),
            Index(
                "jobs",
                "held_keys_by_scope",
                up("tenant", "unique_key", "unique_scope"),
                {"unique": True, "partialFilterExpression": {"unique_held": True}},
            ),
        ),
        rewritings=(
            Rewriting(
                "jobs",
                "update_many",
                (
                    {"unique_key": {"$exists": True}, "unique_scope": {"$exists": False}},
                    [{"$set": {"unique_scope": "$type"}}],
                ),
            ),
            Rewriting(
                "keys",
                "aggregate",
                (
                    [
                        {"$match": WITHOUT_SCOPE},
                        {
                            "$replaceWith": {"$mergeObjects": ["$$ROOT", {"_id": SCOPED}]}
                        },  # the order of its fields counts
                        {"$merge": {"into": "{keys}", "whenMatched": "keepExisting"}},
                    ],
                ),
            ),
            Rewriting("keys", "delete_many", (WITHOUT_SCOPE,)),
        ),
        drops=(("jobs", "held_keys"),),
    ),
    # `keep_seconds` is absent where no keep= was given. Until now 604800 said so, and no job was given exactly this
    # value. A completed job cannot be retried, so it needs no change. Code of schema 2 can work beside this one. It
    # still writes 604800 for the default. Here such a job counts as one with keep="7d": if it fails, it is kept for 7
    # days and not for 30. Where many processes migrate at once, one of them may enqueue a job with keep="7d" before
    # another one has ended. The migration may change this job, too: it is kept for 30 days if it fails.
    Migration(
        3,
        "0003 keep is absent by default",
        2,
        (),
        rewritings=(
            Rewriting(
                "jobs",
                "update_many",
                ({"keep_seconds": 604_800, "state": {"$ne": COMPLETED}}, {"$unset": {"keep_seconds": ""}}),
            ),
            Rewriting(
                "schedules",
                "update_many",
                (
                    {"call": {"$regex": KEPT_BY_DEFAULT}},
                    [
                        {
                            "$set": {
                                "call": {"$replaceOne": {"input": "$call", "find": KEPT_BY_DEFAULT, "replacement": ""}}
                            }
                        }
                    ],
                ),
            ),
        ),
    ),
)
LATEST = MIGRATIONS[-1].version
DROPPED = {drop for migration in MIGRATIONS for drop in migration.drops}  # indexes that need not be created any more


class Migrations(Part):
    """Operations `migrate`, `check_schema`, `script`."""

    def migrate(self) -> Operation[list[str]]:
        if (yield from self.check_schema()):
            return []
        rows = yield Request(self.context.migrations, "find", ({}, {"_id": 1}), alone=True)
        there = {row["_id"] for row in rows}
        missing = [migration for migration in MIGRATIONS if migration.version not in there]
        done = False
        for migration in missing:
            yield from self._apply(migration)
            done = yield from self._record(migration)
        # Many processes may do all of it at once; the one that writes the last record reports it.
        return [migration.name for migration in missing] if done else []

    def _apply(self, migration: Migration) -> Operation[None]:
        for rewriting in migration.rewritings:
            yield rewriting.at(self.context.prefix)
        wanted = [index for index in migration.indexes if (index.collection, index.name) not in DROPPED]
        for collection in sorted({index.collection for index in wanted}):
            models = [
                IndexModel(list(index.keys), name=index.name, **index.options)
                for index in wanted
                if index.collection == collection
            ]
            yield Request(self.context.prefix + collection, "create_indexes", (models,), alone=True)
        for collection, name in migration.drops:
            with suppress(NoSuchIndex):
                yield Request(self.context.prefix + collection, "drop_index", (name,), alone=True)

    def _record(self, migration: Migration) -> Operation[bool]:
        now = {"$cond": [{"$eq": [{"$type": "$applied_at"}, "missing"]}, "$$NOW", "$applied_at"]}
        fields = {"name": {"$literal": migration.name}, "min_compatible": migration.min_compatible, "applied_at": now}
        change, options = [{"$set": fields}], {"upsert": True}
        try:
            (result,) = yield Request(
                self.context.migrations, "update_one", ({"_id": migration.version}, change), options, alone=True
            )
        except Duplicate:
            return False
        return result.upserted_id is not None

    def check_schema(self) -> Operation[bool]:
        rows = yield Request(self.context.migrations, "find", ({},), {"sort": [("_id", -1)], "limit": 1}, alone=True)
        if not rows:
            return False
        newest = rows[0]
        if newest["min_compatible"] > LATEST:
            raise SchemaMismatch(
                f"the database has schema {newest['_id']}, which needs code that knows schema "
                f"{newest['min_compatible']}; this is {LATEST}: install a newer Windlass"
            )
        return bool(newest["_id"] >= LATEST)

    def script(self) -> str:
        """For mongosh."""
        lines = []
        for migration in MIGRATIONS:
            lines.append(f"// {migration.name}")
            for rewriting in migration.rewritings:
                request = rewriting.at(self.context.prefix)
                head, *rest = request.method.split("_")
                method = head + "".join(part.title() for part in rest)
                arguments = ", ".join(map(json.dumps, request.arguments))
                lines.append(f'db.getCollection("{request.collection}").{method}({arguments});')
            for index in migration.indexes:
                options = json.dumps({"name": index.name, **index.options})
                lines.append(
                    f'db.getCollection("{self.context.prefix}{index.collection}")'
                    f".createIndex({json.dumps(dict(index.keys))}, {options});"
                )
            lines += [
                f'db.getCollection("{self.context.prefix}{collection}").dropIndex("{name}");'
                for collection, name in migration.drops
            ]
            record = json.dumps({"name": migration.name, "min_compatible": migration.min_compatible})
            lines.append(
                f'db.getCollection("{self.context.migrations}").updateOne({{_id: {migration.version}}}, '
                f"{{$setOnInsert: {record}, $currentDate: {{applied_at: true}}}}, {{upsert: true}});"
            )
        return "\n".join(lines) + "\n"

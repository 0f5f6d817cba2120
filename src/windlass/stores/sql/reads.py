"""Reads in SQL: jobs, live and finished, in one statement; the ends of chains; counts."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from uuid import UUID

from ...job import Job
from ...lifecycle import COMPLETED, FINISHED
from ...operation import Operation, Statement
from ..store import Blocker, Bookmark, Counts, Filter, Tally
from .dialect import Part
from .query import Query

LIVE = "SELECT {live_columns} FROM {jobs} AS j WHERE {condition}"
HISTORY = "SELECT {finished_columns} FROM {history} AS j WHERE {condition}"
PAGE = "SELECT * FROM ({table} ORDER BY j.id DESC LIMIT :limit) AS page"
CONDITIONS = {
    "type": "j.type = :type",
    "queue": "j.queue = :queue",
    "tenant": "j.tenant = :tenant AND j.tenant <> ''",
    "no tenant": "j.tenant = ''",
    # The root through the primary key, the rest through the index of those that are not roots.
    "chain": "j.id IN (SELECT c.id FROM {own} AS c WHERE c.chain_id = CAST(:chain AS {uuid}) AND c.chain_index > 0 "
    "UNION ALL SELECT CAST(:chain AS {uuid}))",
    "unique": "j.id IN (SELECT h.id FROM {jobs} AS h "
    "WHERE h.tenant = :tenant AND h.unique_key = :unique AND h.unique_held "
    "UNION ALL SELECT k.job_id FROM {keys} AS k WHERE k.tenant = :tenant AND k.key = :unique "
    "AND (k.ends_at IS NULL OR k.ends_at > {now}))",
    "before": "j.id < :before",
    "ended_at": "j.finished_at <= :ended_at",
    "ended_before": "(j.finished_at, j.id) < (:ended_at, :ended_before)",
    "since": "j.{moment_of} >= :since",
}


class Reads(Part):
    """Operations `get`, `list`, `counts`, `paused`, `live_queues`, `head`, `ends`, `watch`, `blockers`."""

    def get(self, ids: Sequence[UUID]) -> Operation[builtins.list[Job]]:
        query = self.over_both_tables("get", ("ids",), f"{LIVE} UNION ALL {HISTORY}", "j.id {in_ids}")
        found = yield Statement(query, {"ids": self.array(ids)}, alone=True)
        return [self.rows.job(row) for row in found]

    def over_both_tables(self, name: str, shape: tuple[str, ...], text: str, condition: str) -> Query:
        """A query in which `LIVE` and `HISTORY` have this condition, each with the names of its own table."""

        def make() -> str:
            live = condition.replace("{own}", "{jobs}").replace("{moment_of}", "created_at")
            history = condition.replace("{own}", "{history}").replace("{moment_of}", "finished_at")
            whole = text.replace(LIVE, LIVE.replace("{condition}", live))
            return whole.replace(HISTORY, HISTORY.replace("{condition}", history))

        return self.queries.library.made((name, *shape), make)

    def counts(self) -> Operation[Counts]:
        rows = yield self.statement("counts", alone=True)
        return Counts(Tally(*row) for row in rows)

    def paused(self) -> Operation[builtins.list[str]]:
        rows = yield self.statement("paused", alone=True)
        return [row[0] for row in rows]

    def live_queues(self) -> Operation[builtins.list[str]]:
        rows = yield self.statement("live_queues", alone=True)
        return [row[0] for row in rows]

    def head(self, tenant: str, order_key: str) -> Operation[Job | None]:
        rows = yield self.statement("head", alone=True, tenant=tenant, order_key=order_key)
        return self.rows.job(rows[0]) if rows else None

    def ends(self, chains: Sequence[UUID]) -> Operation[builtins.list[Job]]:
        rows = yield self.statement("ends", alone=True, ids=self.array(chains))
        return [self.rows.job(row) for row in rows]

    def watch(self, chains: Sequence[UUID]) -> Operation[None]:
        yield self.statement("link", alone=True, ids=self.array(sorted(chains)))

    def blockers(self, ids: Sequence[UUID]) -> Operation[dict[UUID, builtins.list[Blocker]]]:
        rows = yield self.statement("blockers", alone=True, ids=self.array(ids))
        found: dict[UUID, builtins.list[Blocker]] = {}
        to_uuid = self.rows.to_uuid
        for job, chain, done, output, failed, trace in rows:
            found.setdefault(to_uuid(job), []).append(Blocker(to_uuid(chain), bool(done), output, bool(failed), trace))
        return found

    def list(self, filter: Filter, limit: int, before: Bookmark | None = None) -> Operation[builtins.list[Job]]:
        names = ("type", "queue", "tenant", "chain", "since", "unique")
        given = {name: getattr(filter, name) for name in names}
        if filter.unique is not None:
            given["tenant"] = filter.tenant or ""
        if before is not None:
            given |= (
                {"ended_at": before.ended_at, "ended_before": before.id} if filter.by_end else {"before": before.id}
            )
        given = {name: value for name, value in given.items() if value is not None}
        shape = ["no tenant" if name == "tenant" and not value else name for name, value in given.items()]
        conditions = [CONDITIONS[name] for name in shape]
        if filter.state:
            # One of six words. It is no parameter, so that a generic plan can use the partial index.
            conditions.append(f"j.state = '{filter.state}'")
            if filter.state != COMPLETED:
                conditions.append(f"j.state <> '{COMPLETED}'")  # SQLite does not conclude this by itself
        tables = [HISTORY] if filter.state in FINISHED else [LIVE] if filter.state else [LIVE, HISTORY]
        pages = [PAGE.replace("{table}", table) for table in tables]
        condition = " AND ".join(conditions) or "{true}"
        # Each table gives its first page through its index; then the two pages are merged.
        text = " UNION ALL ".join(pages) + " ORDER BY 1 DESC LIMIT :limit"
        if filter.by_end:
            text = f"{HISTORY} ORDER BY j.finished_at DESC, j.id DESC LIMIT :limit"
        query = self.over_both_tables("list", (*shape, filter.state or ""), text, condition)
        found = yield Statement(query, {**given, "limit": limit}, alone=True)
        return [self.rows.job(row) for row in found]

"""Chains in SQL: the jobs that wait for a chain, and pages of chains.

A chain is identified by its first job, its root. A job that continued its chain has completed without an output. So a
root with an output is also the end of its chain, and no further read is needed.
"""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from uuid import UUID

from ...job import Job
from ...lifecycle import COMPLETED, FINISHED
from ...operation import Operation, Statement
from ..store import ChainRecord, Filter
from .dialect import Dialect, Part
from .reads import HISTORY, LIVE, Reads

WAITING = (
    "j.id IN (SELECT e.job_id FROM {edges} AS e WHERE e.chain_id = CAST(:chain AS {uuid}) "
    "AND e.job_id > CAST(:after AS {uuid}))"
)
UPWARDS = "SELECT * FROM ({table} ORDER BY j.id LIMIT :limit) AS page"
PAGE = "SELECT * FROM ({part} LIMIT :limit) AS page"
FIRST = UUID(int=0)

# The newest job of a chain whose root is in history.
LIVE_TAIL = (
    "(SELECT l.id FROM {jobs} AS l WHERE l.chain_id = r.id AND l.chain_index > 0 ORDER BY l.chain_index DESC LIMIT 1)"
)
ENDED_TAIL = (
    "(SELECT h.{column} FROM {history} AS h WHERE h.chain_id = r.id AND h.chain_index > 0 "
    "ORDER BY h.chain_index DESC LIMIT 1)"
)
CONTINUED = "r.state = 'completed' AND r.output IS NULL"
TAIL = f"CASE WHEN {CONTINUED} THEN coalesce({LIVE_TAIL}, {ENDED_TAIL}, r.id) ELSE r.id END".replace("{column}", "id")

# Each returns the ids of roots and of ends, newest root first. A count, since a planner makes no join of it as it does
# of EXISTS.
ROOTS = "SELECT r.id, r.id FROM {jobs} AS r WHERE r.chain_index = 0 {of_root} {of_state} {before} ORDER BY r.id DESC"
LATER = (
    "SELECT r.chain_id, r.id FROM {jobs} AS r WHERE r.chain_index > 0 {of_state} {before} "
    "AND (SELECT count(*) FROM {history} AS o WHERE o.id = r.chain_id {of_other}) > 0 ORDER BY r.chain_id DESC"
)
ENDED_ROOTS = (
    "SELECT r.id, {tail} FROM {history} AS r WHERE r.chain_index = 0 {of_root} {of_state} {before} ORDER BY r.id DESC"
).replace("{tail}", TAIL)
FAILED_ENDS = (
    "SELECT r.chain_id, r.id FROM {history} AS r WHERE r.state <> 'completed' {of_state} {before} AND CASE "
    "WHEN r.chain_index = 0 THEN {true} {of_root} "
    "ELSE (SELECT count(*) FROM {history} AS o WHERE o.id = r.chain_id {of_other}) > 0 END ORDER BY r.chain_id DESC"
)
DONE = (
    "AND r.state = 'completed' AND (r.output IS NOT NULL OR "
    f"({LIVE_TAIL} IS NULL AND coalesce({ENDED_TAIL}, 'completed') = 'completed'))"
).replace("{column}", "state")


class Chains(Part):
    """Operations `dependents` and `chains`."""

    def __init__(self, dialect: Dialect, reads: Reads) -> None:
        super().__init__(dialect)
        self.reads = reads

    def dependents(self, chain: UUID, limit: int, after: UUID | None = None) -> Operation[builtins.list[Job]]:
        pages = [UPWARDS.replace("{table}", table) for table in (LIVE, HISTORY)]
        text = " UNION ALL ".join(pages) + " ORDER BY 1 LIMIT :limit"
        query = self.reads.over_both_tables("dependents", (), text, WAITING)
        found = yield Statement(query, {"chain": chain, "after": after or FIRST, "limit": limit}, alone=True)
        return [self.rows.job(row) for row in found]

    def chains(self, filter: Filter, limit: int, before: UUID | None = None) -> Operation[builtins.list[ChainRecord]]:
        step = self._page_of_chains(filter, limit, before)
        records: builtins.list[ChainRecord] = []
        for _ in range(2):  # a chain may get its next job between the two reads
            rows = yield step
            pairs = [(self.rows.to_uuid(root), self.rows.to_uuid(last)) for root, last in rows]
            ids = sorted({id for pair in pairs for id in pair})
            found = (yield from self.reads.get(ids)) if ids else []
            jobs = {job.id: job for job in found}
            records = [ChainRecord(jobs[root], jobs[last]) for root, last in pairs if root in jobs and last in jobs]
            if not any(record.last.went_on for record in records):
                break
        return records

    def _page_of_chains(self, filter: Filter, limit: int, before: UUID | None) -> Statement:
        names = [name for name in ("type", "queue", "tenant") if getattr(filter, name) is not None]
        given = {name: getattr(filter, name) for name in names if name != "tenant" or filter.tenant}
        shape = ("before" if before else "", filter.state or "", *names, "" if "tenant" in given else "no tenant")
        query = self.queries.library.made(("chains", *shape), lambda: _chains_text(filter, names, before is not None))
        return Statement(query, {**given, "limit": limit} | ({"before": before} if before else {}), alone=True)


def _chains_text(filter: Filter, names: Sequence[str], has_before: bool) -> str:
    parts = _parts_of(filter.state)
    of_state = f"AND r.state = '{filter.state}'" if filter.state and filter.state != COMPLETED else ""
    texts: list[str] = []
    for part in parts:
        by = "chain_id" if part in (LATER, FAILED_ENDS) else "id"
        text = part.replace("{of_state}", DONE if filter.state == COMPLETED else of_state)
        text = text.replace("{before}", f"AND r.{by} < :before" if has_before else "")
        text = text.replace("{of_root}", _conditions("r", names, filter))
        text = text.replace("{of_other}", _conditions("o", names, filter))
        texts.append(PAGE.replace("{part}", text))
    return " UNION ALL ".join(texts) + " ORDER BY 1 DESC LIMIT :limit"


def _parts_of(state: str | None) -> Sequence[str]:
    if state is None:
        return (ROOTS, ENDED_ROOTS)
    if state == COMPLETED:
        return (ENDED_ROOTS,)
    return (FAILED_ENDS,) if state in FINISHED else (ROOTS, LATER)


def _conditions(alias: str, names: Sequence[str], filter: Filter) -> str:
    """`tenant <> ''` stands there again, so that the planner can use the partial index."""
    of_tenant = f"{alias}.tenant = :tenant AND {alias}.tenant <> ''" if filter.tenant else f"{alias}.tenant = ''"
    return "".join(f" AND {of_tenant if name == 'tenant' else f'{alias}.{name} = :{name}'}" for name in names)

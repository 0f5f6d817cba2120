"""PostgreSQL's dialect: arrays for many rows, locked rows are skipped, advisory locks for order keys, one statement
ends many jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any
from uuid import UUID

import msgspec

from ...clock import Clock
from ...job import Job, NewJob
from ...lifecycle import COMPLETED, PENDING
from ...operation import Operation, Statement
from ...outcome import Settlement
from ..columns import Columns
from ..names import check_name
from ..sql.dialect import PLAIN, ChainEnd, OrderKey
from ..sql.enqueue import NumberedJob
from ..sql.query import Queries, postgres_rows
from ..store import Change, ClaimRequest, may_be_handed_over
from ..wakeup import Hint
from .bulk import Bulk
from .examination import Examination
from .maintenance import Maintenance
from .own import Texts, Uuids
from .placeholders import make_placeholders, of_columns

# A lost claim leaves its jobs pending, so it need not wait for the disk. A last attempt that counts as begun with its
# claim must not be lost.
NO_WAIT = "(SELECT set_config('synchronous_commit', 'off', true))"
WAIT_FOR_LAST = """, {is_last_now} AS last)
SELECT * FROM claimed
WHERE (SELECT CASE WHEN bool_or(last) THEN '' ELSE set_config('synchronous_commit', 'off', true) END FROM claimed)
    IS NOT NULL"""
NOT_BEGUN = "(CASE WHEN {is_last_next} THEN false END)"

# Statements that take their rows as one array for each field.
IN_ARRAYS: dict[str, dict[str, str]] = {
    "begin": {"ids": "id", "tokens": "token"},
    "note": {"ids": "id", "tokens": "token", "progress": "progress"},
    "renew": {"ids": "id", "tokens": "token", "seconds": "seconds", "progress": "progress"},
}

# An admission skips the keys and chains that other transactions have locked.
OTHER_KEYS = "AND (tenant, order_key) NOT IN (SELECT * FROM unnest(:tenants::text[], :order_keys::text[]))"
OTHER_CHAINS = """AND NOT EXISTS (
    SELECT FROM {edges} AS e WHERE e.job_id = j.id AND e.chain_id = ANY(:chains::uuid[]) AND NOT e.done)"""

# One statement ends jobs: it fences them, moves them to history, counts them, adds the next jobs of their chains.
# Most batches only complete: three arrays are quicker to send than seven. The planner must not know
# the length of the arrays: for a long one it would read the whole table instead of going through its primary key.
COMPLETED_ONLY = """SELECT *, 'completed' AS new_state, NULL AS new_error, NULL AS story, NULL AS said
    FROM unnest((SELECT :ids::uuid[]), (SELECT :tokens::uuid[]), (SELECT :outputs::text[])) AS g (id, token, output)"""
ANY_END = """SELECT * FROM unnest(
        (SELECT :ids::uuid[]), (SELECT :tokens::uuid[]), (SELECT :outputs::text[]), (SELECT :states::text[]),
        (SELECT :errors::text[]), (SELECT :stories::text[]), (SELECT :said::text[]))
        AS g (id, token, output, new_state, new_error, story, said)"""
ONE_COMPLETED = """SELECT :id::uuid AS id, :ended::uuid AS token, :output::text AS output, 'completed' AS new_state,
    NULL AS new_error, NULL AS story, NULL AS said"""

# The next jobs of their chains, where they are plain jobs.
NEXT_JOBS = """, added AS (
    INSERT INTO {jobs} ({next_columns}{claim_columns})
    SELECT {next_values}{claim_values} FROM {next_jobs}
    WHERE n.before IN (SELECT id FROM gone)
    {returning}
)"""
PENDING_NEXT = {
    "next_state": "'pending'", "claim_columns": "", "claim_values": "", "returning": "",
    "next_jobs": "ROWS FROM (unnest(:before::uuid[]), json_to_recordset(:rows::text::json) AS ({next_types})) "
    "AS n (before, {next_names})",
}  # fmt: skip

# A next job that is claimed at once: this halves the time of a chain of short steps.
CLAIMED_NEXT = {
    "next_state": "'running'",
    "claim_columns": ", attempt, token, worker, claimed_at, heard_at, leased_until",
    "claim_values": ", 1, :token::uuid, :worker::text, {now}, {now}, {now} + make_interval(secs => n.lease_seconds)",
    "returning": "RETURNING *",
    "next_jobs": "(SELECT :id::uuid AS before, :next_id::uuid AS id, {next_given}) AS n",
}

# Usually none is refused: then the two lists are not compared.
REFUSED = """SELECT id FROM given
WHERE (SELECT count(*) FROM gone) < cardinality(:ids::uuid[]) AND id NOT IN (SELECT id FROM gone)"""
CLAIMED = "SELECT {live_columns} FROM added AS j"
OPEN = "AND NOT {is_paused|:queue::text}"


class PostgresDialect:
    """A `Dialect`."""

    has_one_writer = False

    def __init__(self, schema: str, prefix: str, channel: str, columns: Columns, clock: Clock) -> None:
        check_name("schema", schema), check_name("prefix", prefix)
        self.rows = rows = postgres_rows(columns)
        lists = of_columns(columns)
        self.queries = queries = Queries(
            "windlass.stores.postgres",
            clock,
            lambda offset: make_placeholders(schema, prefix, channel, lists, offset),
        )
        maintenance = Maintenance(queries)
        self.bulk = Bulk(queries, rows, columns).enqueue
        self.prune, self.vacuum = maintenance.prune, maintenance.vacuum
        self.examine = Examination(queries).examine

    def array(self, values: Sequence[Any]) -> list[Any]:
        return list(values)

    def many(self, name: str, rows: Sequence[msgspec.Struct], *, alone: bool = False, now: object = None) -> Statement:
        if rows and name in IN_ARRAYS:
            arrays = {array: [getattr(row, field) for row in rows] for array, field in IN_ARRAYS[name].items()}
            return self.queries.statement(name, alone=alone, **arrays)
        if len(rows) == 1 and name == "add_jobs" and not isinstance(rows[0], NumberedJob):
            return Statement(self.queries.library["add_job"], msgspec.structs.asdict(rows[0]), alone=alone)
        return self.queries.statement(name, alone=alone, rows=msgspec.json.encode(rows).decode())

    def fixed_now(self, count: int) -> Operation[Any | None]:
        yield from ()
        return None

    def replace_job(self, job: NewJob, now: Any | None) -> Statement:
        return Statement(self.queries.library["replace_job"], msgspec.structs.asdict(job))

    def lock_cycle_check(self) -> Operation[None]:
        yield self.queries.statement("lock_cycle_check")

    def claim_parts(self, request: ClaimRequest) -> dict[str, str]:
        which = "WHERE NOT coalesce(due.last, false)" if request.prefetch else ""
        if request.prefetch or not request.begun:
            begun = "NULL" if request.prefetch else NOT_BEGUN
            return {"head": "", "begun": begun, "hurry": f"{NO_WAIT} IS NOT NULL AND", "which": which, "tail": ""}
        return {"head": "WITH claimed AS (", "begun": "NULL", "hurry": "", "which": which, "tail": WAIT_FOR_LAST}

    def finish(self, settlements: Sequence[Settlement], *, alone: bool, plain: bool = True) -> Operation[set[UUID]]:
        parameters: dict[str, Any] = {
            "ids": Uuids([one.id for one in settlements]),
            "tokens": Uuids([one.token for one in settlements]),
            "outputs": Texts([one.output for one in settlements]),
        }
        parts = {"given": COMPLETED_ONLY, "plain": PLAIN if plain else "", "next": "", "answer": REFUSED}
        if plain and any(one.continues is not None for one in settlements):
            parts |= {"next": NEXT_JOBS, **PENDING_NEXT}
            parameters |= _next_jobs(settlements)
        if any(one.state != COMPLETED or one.progress is not None for one in settlements):
            parts["given"] = ANY_END
            parameters["states"] = Texts([one.state for one in settlements])
            parameters["errors"] = Texts([one.error for one in settlements])
            parameters["said"] = Texts([one.progress for one in settlements])
            parameters["stories"] = Texts([one.attempts for one in settlements])
        rows = yield Statement(self.queries.library.variant("finish", **parts), parameters, alone=alone)
        return {self.rows.to_uuid(row[0]) for row in rows}

    def finish_adds(self, job: NewJob) -> bool:
        return not (job.id_given or job.unique_key or job.order_key or job.blockers)

    def hand_over(self, settlement: Settlement, token: UUID, worker: str) -> Operation[Job | None]:
        """Where the job that completes has no dependents, and the next one is due now."""
        job = settlement.continues
        if job is None or not may_be_handed_over(job) or not self.finish_adds(job) or settlement.progress is not None:
            return None
        parameters = msgspec.structs.asdict(job) | {
            "id": settlement.id,
            "ended": settlement.token,
            "output": settlement.output,
            "next_id": job.id,
            "token": token,
            "worker": worker,
        }
        parts = {"given": ONE_COMPLETED, "plain": f"{PLAIN} {OPEN}", "next": NEXT_JOBS, "answer": CLAIMED}
        rows = yield Statement(self.queries.library.variant("finish", **parts, **CLAIMED_NEXT), parameters, alone=True)
        return self.rows.job(rows[0]) if rows else None

    def lock_order_keys(self, keys: Sequence[OrderKey]) -> Operation[None]:
        if keys:
            yield self.queries.statement("lock_order_keys", keys=[f"{tenant}\x1f{key}" for tenant, key in keys])

    def try_order_keys(self, keys: Sequence[OrderKey]) -> Operation[Sequence[OrderKey]]:
        rows = yield self.queries.statement("try_order_keys", keys=[f"{tenant}\x1f{key}" for tenant, key in keys])
        return [keys[row[0]] for row in rows]

    def promote(self, keys: Sequence[OrderKey]) -> Statement:
        return self.queries.statement("promote", **_in_two_arrays(keys))

    def lock_ends(self, chains: Sequence[UUID]) -> Operation[set[UUID]]:
        rows = yield self.queries.statement("lock_ends", ids=list(chains))
        return {row[0] for row in rows}

    def arriving_ordered(self, limit: int, busy: Collection[OrderKey]) -> Statement:
        query = self.queries.library.variant("arriving_ordered", of_others=OTHER_KEYS if busy else "")
        return Statement(query, {"limit": limit} | (_in_two_arrays(busy) if busy else {}))

    def arriving_blocked(self, limit: int, busy: Collection[UUID]) -> Statement:
        query = self.queries.library.variant("arriving_blocked", of_others=OTHER_CHAINS if busy else "")
        parameters: dict[str, Any] = {"limit": limit} | ({"chains": list(busy)} if busy else {})
        return Statement(query, parameters)

    def mark_done(self, ends: Sequence[ChainEnd], jobs: Sequence[UUID] | None) -> Statement:
        parameters: dict[str, Any] = {"chains": [chain for chain, _ in ends], "outputs": [output for _, output in ends]}
        if jobs is not None:
            parameters["ids"] = list(jobs)
        query = self.queries.library.variant("mark_done", of_jobs="" if jobs is None else "AND e.job_id {in_ids}")
        return Statement(query, parameters)

    def unblock(self, counts: Counter[UUID]) -> Statement:
        return self.queries.statement("unblock", ids=list(counts.keys()), counts=list(counts.values()))

    def members(self, chains: Sequence[UUID], *, locked: bool) -> Statement:
        query = self.queries.library.variant("chain_members", locked="FOR UPDATE" if locked else "")
        return Statement(query, {"ids": list(chains)})

    def retry(self, ids: Sequence[UUID]) -> Operation[dict[UUID, Change]]:
        # One by one: where another job holds the key of one, only this one is undone.
        done = {}
        for id in ids:
            yield self.queries.statement("savepoint")
            rows = yield self.queries.statement("retry", ids=[id])
            if rows and not rows[0][3]:
                yield self.queries.statement("savepoint_undo")
                done[id] = Change(id, False, rows[0][2], rows[0][1])
            elif rows:
                done[id] = Change(id, True, PENDING, rows[0][1])
        return done

    def remove(self, chains: Sequence[UUID]) -> Operation[dict[UUID, Change]]:
        rows = yield self.queries.statement("delete", ids=self.array(chains))
        return {(id := self.rows.to_uuid(row[0])): Change(id, True, row[2], row[1]) for row in rows}

    def hint(self, hints: Sequence[Hint]) -> Operation[None]:
        yield self.queries.statement("hint", alone=True, texts=sorted({hint.encode() for hint in hints}))

    def name_tenant(self, tenant: str) -> Operation[None]:
        yield self.queries.statement("name_tenant", tenant=tenant)


def _in_two_arrays(keys: Collection[OrderKey]) -> dict[str, Any]:
    return {"tenants": [tenant for tenant, _ in keys], "order_keys": [key for _, key in keys]}


def _next_jobs(settlements: Sequence[Settlement]) -> dict[str, Any]:
    pairs = [(one.id, one.continues) for one in settlements if one.continues is not None]
    rows = msgspec.json.encode([job for _, job in pairs]).decode()
    return {"before": Uuids([id for id, _ in pairs]), "rows": rows}

"""The end of jobs in PostgreSQL: one statement fences them, moves them to history, counts them, adds the next jobs of
their chains."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import msgspec

from ...job import Job, NewJob
from ...lifecycle import COMPLETED
from ...operation import Operation, Statement
from ...outcome import Settlement
from ..sql.dialect import PLAIN, Queries
from ..sql.rows import RowReader
from ..store import may_be_handed_over
from .arrays import Texts, Uuids

# The settlements. Most batches only complete: three arrays are quicker to send than seven. The planner must not know
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


class Finish:
    def __init__(self, queries: Queries, rows: RowReader) -> None:
        self.queries, self.rows = queries, rows

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

    def adds(self, job: NewJob) -> bool:
        return not (job.id_given or job.unique_key or job.order_key or job.blockers)

    def hand_over(self, settlement: Settlement, token: UUID, worker: str) -> Operation[Job | None]:
        """Where the job that completes has no dependents, and the next one is due now."""
        job = settlement.continues
        if job is None or not may_be_handed_over(job) or not self.adds(job) or settlement.progress is not None:
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


def _next_jobs(settlements: Sequence[Settlement]) -> dict[str, Any]:
    pairs = [(one.id, one.continues) for one in settlements if one.continues is not None]
    rows = msgspec.json.encode([job for _, job in pairs]).decode()
    return {"before": Uuids([id for id, _ in pairs]), "rows": rows}

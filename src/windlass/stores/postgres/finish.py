"""The end of jobs in PostgreSQL: one statement fences them, moves them to history, counts them, adds the next jobs of
their chains."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import msgspec
import psycopg
from psycopg import pq
from psycopg.adapt import Dumper
from psycopg.types.string import ByteaBinaryLoader, TextBinaryLoader

from ...job import Job, NewJob
from ...lifecycle import COMPLETED
from ...operation import Operation, Statement
from ...outcome import Settlement
from ..sql.dialect import PLAIN
from ..sql.query import Queries, RowReader
from ..store import may_be_handed_over

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


# Arrays for settlements are encoded here, since psycopg inspects each element twice before it sends it. On connections
# of the caller they are plain lists.
UUID_OID, UUIDS_OID = 2950, 2951
TEXT_OID, TEXTS_OID = 25, 1009

_HEADER = struct.Struct("!iiIii")
_LENGTH = struct.Struct("!i")
_UUID_LENGTH = _LENGTH.pack(16)
_NULL = _LENGTH.pack(-1)


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


class Uuids(list["UUID | None"]):
    """Ids or tokens."""


class Texts(list["str | None"]):
    """Payloads."""


class UuidsDumper(Dumper):
    format = pq.Format.BINARY
    oid = UUIDS_OID

    def dump(self, obj: Uuids) -> bytes:
        parts = [_header(UUID_OID, obj)]
        last, part = None, _NULL  # a token comes many times in a row
        for one in obj:
            if one is not last:
                last = one
                part = _NULL if one is None else _UUID_LENGTH + one.int.to_bytes(16, "big")
            parts.append(part)
        return b"".join(parts)


class TextsDumper(Dumper):
    format = pq.Format.BINARY
    oid = TEXTS_OID

    def dump(self, obj: Texts) -> bytes:
        encoded: dict[str | None, bytes] = {None: _NULL}
        parts = [_header(TEXT_OID, obj)]
        for one in obj:
            part = encoded.get(one)
            if part is None:
                raw = one.encode()  # type: ignore[union-attr]
                part = encoded[one] = _LENGTH.pack(len(raw)) + raw
            parts.append(part)
        return b"".join(parts)


def _header(element: int, values: list[Any]) -> bytes:
    if not values:
        return _HEADER.pack(0, 0, element, 0, 0)[:12]
    return _HEADER.pack(1, 1, element, len(values), 1)


def register(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> None:
    connection.adapters.register_dumper(Uuids, UuidsDumper)
    connection.adapters.register_dumper(Texts, TextsDumper)
    connection.adapters.register_loader("json", TextBinaryLoader)  # a payload is decoded by its task
    # A timestamp as its eight bytes: most are never looked at.
    connection.adapters.register_loader("timestamptz", ByteaBinaryLoader)

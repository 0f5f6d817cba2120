"""PostgreSQL's dialect: arrays for many rows, row locks that are skipped, advisory locks for order keys."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

import msgspec

from ...clock import Clock
from ...job import Job, NewJob
from ...lifecycle import COMPLETED, PENDING
from ...operation import Copy, Operation, Statement
from ...outcome import Settlement
from ...policy import DEFAULT, KEEP_FAILED_SECONDS, KEEP_SECONDS, PARTIAL
from ..names import check_name
from ..sql.dialect import PLAIN, ChainEnd, OrderKey, Queries
from ..sql.enqueue import NumberedJob
from ..sql.rows import POSTGRES_ROWS, new_job, shared_placeholders
from ..store import Change, ClaimRequest, Enqueued, may_be_handed_over
from ..wakeup import Hint
from .arrays import Texts, Uuids

RING_SLOTS = 32
RING_DAYS = 30  # what is kept for so long at most goes by TRUNCATE
COPY_FROM = 20  # jobs: below, one INSERT is quicker than COPY's three round trips

COPIED = {
    "id": "uuid", "state": "text", "queue": "text", "type": "text", "tenant": "text", "rank": "int2",
    "run_at": "timestamptz", "created_at": "timestamptz", "input": "text", "labels": "text", "max_attempts": "int4",
    "lease_seconds": "float8", "keep_seconds": "int4", "policy": "text", "expires_at": "timestamptz",
    "chain_id": "uuid", "chain_index": "int4", "trace": "text", "chain_trace": "text",
}  # fmt: skip

# Statements that take their rows as one array for each field.
IN_ARRAYS: dict[str, dict[str, str]] = {
    "begin": {"ids": "id", "tokens": "token"},
    "note": {"ids": "id", "tokens": "token", "progress": "progress"},
    "renew": {"ids": "id", "tokens": "token", "seconds": "seconds", "progress": "progress"},
}

# What a settlement is given. Most batches only complete: three arrays are quicker to send than six. The planner is not
# to know how long they are: for a long one it would rather read the whole table than go through its primary key.
COMPLETED_ONLY = """SELECT *, 'completed' AS new_state, NULL AS new_error, NULL AS story, NULL AS said
    FROM unnest((SELECT :ids::uuid[]), (SELECT :tokens::uuid[]), (SELECT :outputs::text[])) AS g (id, token, output)"""
ANY_END = """SELECT * FROM unnest(
        (SELECT :ids::uuid[]), (SELECT :tokens::uuid[]), (SELECT :outputs::text[]), (SELECT :states::text[]),
        (SELECT :errors::text[]), (SELECT :stories::text[]), (SELECT :said::text[]))
        AS g (id, token, output, new_state, new_error, story, said)"""

# The next jobs of their chains, where they are plain ones: in the statement that completes the ones before.
GOING_ON = """, went_on AS (
    INSERT INTO {jobs} (
        id, state, queue, type, tenant, rank, run_at, created_at, input, labels, max_attempts, lease_seconds,
        keep_seconds, policy, expires_at, chain_id, chain_index, trace, chain_trace{taken_columns})
    SELECT n.id, {next_state}, n.queue, n.type, n.tenant, n.rank,
        greatest(n.run_at, {now}) + make_interval(secs => n.delay_seconds), {now}, n.input::json, n.labels,
        n.max_attempts, n.lease_seconds, n.keep_seconds, n.policy,
        coalesce(n.expires_at, {now} + make_interval(secs => n.expires_seconds)), n.chain_id, n.chain_index, n.trace,
        n.chain_trace
        {taken}
    FROM {following}
    WHERE n.before IN (SELECT id FROM gone)
    {returning}
)"""
MANY_FOLLOWING = """ROWS FROM (unnest(:before::uuid[]), json_to_recordset(:rows::text::json) AS (
        id uuid, queue text, type text, tenant text, rank smallint, run_at timestamptz, delay_seconds float8,
        input text, labels text, max_attempts integer, lease_seconds float8, keep_seconds integer, policy text,
        expires_at timestamptz, expires_seconds float8, chain_id uuid, chain_index integer, trace text,
        chain_trace text)) AS n (before, id, queue, type, tenant, rank, run_at, delay_seconds, input, labels,
        max_attempts, lease_seconds, keep_seconds, policy, expires_at, expires_seconds, chain_id, chain_index, trace,
        chain_trace)"""
REFUSED = "SELECT id FROM given WHERE id NOT IN (SELECT id FROM gone)"
WAITING = {
    "next_state": "'pending'", "taken_columns": "", "taken": "", "returning": "", "following": MANY_FOLLOWING,
}  # fmt: skip

# Claimed at once by whoever completes the one before: chains of short steps gain half their time by it.
TAKEN = {
    "next_state": "'running'",
    "taken_columns": ", attempt, token, worker, claimed_at, heard_at, leased_until",
    "taken": ", 1, :token::uuid, :worker::text, {now}, {now}, {now} + make_interval(secs => n.lease_seconds)",
    "returning": "RETURNING *",
    "following": """(SELECT :id::uuid AS before, :next_id::uuid AS id, :queue::text AS queue, :type::text AS type,
        :tenant::text AS tenant, :rank::smallint AS rank, NULL::timestamptz AS run_at, 0::float8 AS delay_seconds,
        :input::text AS input, :labels::text AS labels, :max_attempts::integer AS max_attempts,
        :lease_seconds::float8 AS lease_seconds, :keep_seconds::integer AS keep_seconds, :policy::text AS policy,
        :expires_at::timestamptz AS expires_at, :expires_seconds::float8 AS expires_seconds,
        :chain_id::uuid AS chain_id, :chain_index::integer AS chain_index, :trace::text AS trace,
        :chain_trace::text AS chain_trace) AS n""",
}
ONE_COMPLETED = """SELECT :id::uuid AS id, :ended::uuid AS token, :output::text AS output, 'completed' AS new_state,
    NULL AS new_error, NULL AS story, NULL AS said"""
PASSED_ON = (
    "queue type tenant rank input labels max_attempts lease_seconds keep_seconds policy expires_at expires_seconds "
    "chain_id chain_index trace chain_trace"
).split()
OPEN = "AND NOT EXISTS (SELECT FROM {queues} WHERE name = :queue::text AND paused_at IS NOT NULL)"
HANDED = "SELECT {live_columns} FROM went_on AS j"

# What an admission looks at beside what it could not take.
OTHER_KEYS = "AND (tenant, order_key) NOT IN (SELECT * FROM unnest(:tenants::text[], :order_keys::text[]))"
OTHER_CHAINS = """AND NOT EXISTS (
    SELECT FROM {edges} AS e WHERE e.job_id = j.id AND e.chain_id = ANY(:chains::uuid[]) AND NOT e.done)"""

# A claim that is lost leaves its jobs pending, so it need not wait for the disk. A last attempt that counts as begun
# with its claim is never to be lost.
HURRY = "(SELECT set_config('synchronous_commit', 'off', true))"
NOT_BEGUN = """(CASE WHEN j.attempt + 1 >= nullif(
        coalesce(j.max_attempts, ({policy} ->> 'max_attempts')::integer), 0) THEN false END)"""
BEGUN = """, j.attempt >= nullif(j.max_attempts, 0) AS last)
SELECT * FROM claimed
WHERE (SELECT CASE WHEN bool_or(last) THEN '' ELSE set_config('synchronous_commit', 'off', true) END FROM claimed)
    IS NOT NULL"""

HISTORY_COLUMNS = (
    "id run_at created_at finished_at purge_at state attempt slot rank chain_index chain_id queue type tenant input "
    "output max_attempts lease_seconds keep_seconds policy token worker claimed_at expires_at unique_key unique_scope "
    "unique_until order_key schedule labels error attempts progress trace if_failed chain_trace"
).split()


REPLACED_BY = (
    "input run_at delay_seconds rank labels expires_at expires_seconds tenant unique_scope unique_key window_seconds"
).split()


class PostgresDialect:
    """A `Dialect`."""

    rows = POSTGRES_ROWS
    has_one_writer = False

    def __init__(self, schema: str, prefix: str, channel: str, clock: Clock | None = None) -> None:
        self.schema, self.prefix = check_name("schema", schema), check_name("prefix", prefix)
        self.channel = channel
        self.queries = Queries("windlass.stores.postgres", clock or Clock(), self._placeholders)
        self.notify = True

    def _placeholders(self, clock_offset: timedelta) -> dict[str, str]:
        tables = (
            "jobs",
            "history",
            "keys",
            "queues",
            "tallies",
            "migrations",
            "workers",
            "state",
            "edges",
            "seq",
            "schedules",
        )
        names = {name: f'"{self.schema}"."{self.prefix}{name}"' for name in tables}
        offset = clock_offset // timedelta(microseconds=1)
        ring = RING_DAYS * 86_400
        day = "floor(extract(epoch FROM {now} + make_interval(secs => {stay})) / 86400)::integer"
        return shared_placeholders(
            names
            | {
                "schema": self.schema,
                "prefix": self.prefix,
                "partial": PARTIAL,
                "any_type": "chr(31)",
                "keep_default": str(KEEP_SECONDS),
                "channel": self.channel,
                "now": f"(now() + interval '{offset} microseconds')" if offset else "now()",
                "keep": f"coalesce(j.keep_seconds, {DEFAULT.keep_seconds})",
                "stay": f"(CASE WHEN g.new_state = 'failed' AND {{keep}} = {KEEP_SECONDS} THEN {KEEP_FAILED_SECONDS} "
                "ELSE {keep} END)",
                "slot": f"(CASE WHEN {{stay}} BETWEEN 1 AND {ring} THEN mod({day}, 32) ELSE 32 END)::smallint",
                "history_columns": ", ".join(HISTORY_COLUMNS),
                "typed": "AND type = ANY(:types::text[])",
                # The parameter is parsed once for a statement, and only if a row leaves something to its task.
                "policy": "coalesce((SELECT :policies::jsonb) -> j.type, (SELECT :policies::jsonb) -> '')",
                "lock_space": str(zlib.crc32(f"{self.schema}.{self.prefix}".encode()) - 2**31),
                "in_ids": "= ANY(CAST(:ids AS uuid[]))",
                "uuid": "uuid",
                "moment": "timestamptz",
                "alias": "j.",
                "true": "true",
                "false": "false",
                # As text: an enum has no loader, and a payload stays what it is until its task decodes it.
                "read_state": "j.state::text",
                "read_input": "j.input::text",
                "read_chain_id": "nullif(j.chain_id, j.id)",
            }
        )

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
        return self.queries.statement("replace_job", **{name: getattr(job, name) for name in REPLACED_BY})

    def lock_cycle_check(self) -> Operation[None]:
        yield self.queries.statement("lock_cycle_check")

    def claim_parts(self, request: ClaimRequest) -> dict[str, str]:
        which = "WHERE NOT coalesce(due.last, false)" if request.prefetch else ""
        if request.prefetch or not request.begun:
            begun = "NULL" if request.prefetch else NOT_BEGUN
            return {"head": "", "begun": begun, "hurry": f"{HURRY} IS NOT NULL AND", "which": which, "tail": ""}
        return {"head": "WITH claimed AS (", "begun": "NULL", "hurry": "", "which": which, "tail": BEGUN}

    def bulk(self, jobs: Sequence[NewJob]) -> Operation[list[Enqueued] | None]:
        if len(jobs) < COPY_FROM:
            return None
        rows = yield self.queries.statement("read_clock")
        now, row_security = rows[0]
        if row_security:
            return None
        now = self.rows.to_datetime(now)
        answers, records = [], []
        for job in jobs:
            run_at, expires_at = max(job.run_at or now, now), job.expires_at
            if job.delay_seconds:
                run_at += timedelta(seconds=job.delay_seconds)
            if job.expires_seconds is not None and expires_at is None:
                expires_at = now + timedelta(seconds=job.expires_seconds)
            answers.append(Enqueued(new_job(job, run_at, now, expires_at), True))
            records.append((
                job.id, PENDING, job.queue, job.type, job.tenant, job.rank, run_at, now, job.input, job.labels,
                job.max_attempts, job.lease_seconds, job.keep_seconds, job.policy, expires_at, job.chain_id or job.id,
                job.chain_index, job.trace, job.chain_trace,
            ))  # fmt: skip
        yield Copy(
            self.queries.library.placeholders["jobs"],
            list(COPIED),
            list(COPIED.values()),
            records,
            lambda: self.many("add_jobs", jobs),
        )
        return answers

    def finish(self, settlements: Sequence[Settlement], *, alone: bool, plain: bool = True) -> Operation[set[UUID]]:
        parameters: dict[str, Any] = {
            "ids": Uuids([one.id for one in settlements]),
            "tokens": Uuids([one.token for one in settlements]),
            "outputs": Texts([one.output for one in settlements]),
        }
        given, going_on = COMPLETED_ONLY, ""
        if plain and any(one.continues is not None for one in settlements):
            going_on = GOING_ON
            parameters |= _following(settlements)
        if any(one.state != COMPLETED or one.progress is not None for one in settlements):
            given = ANY_END
            parameters["states"] = Texts([one.state for one in settlements])
            parameters["errors"] = Texts([one.error for one in settlements])
            parameters["said"] = Texts([one.progress for one in settlements])
            parameters["stories"] = Texts([one.attempts for one in settlements])
        rows = yield Statement(
            self.queries.library.variant(
                "finish", given=given, plain=PLAIN if plain else "", going_on=going_on, answer=REFUSED, **WAITING
            ),
            parameters,
            alone=alone,
        )
        return {self.rows.to_uuid(row[0]) for row in rows}

    def hand_over(self, settlement: Settlement, token: UUID, worker: str) -> Operation[Job | None]:
        """Where the job that completes has no dependents, and the next one is due now."""
        job = settlement.continues
        if job is not None and may_be_handed_over(job) and self.finish_adds(job) and settlement.progress is None:
            parameters = {name: getattr(job, name) for name in PASSED_ON} | {
                "id": settlement.id,
                "ended": settlement.token,
                "output": settlement.output,
                "next_id": job.id,
                "token": token,
                "worker": worker,
            }
            parts = {
                "given": ONE_COMPLETED,
                "plain": f"{PLAIN} {OPEN}",
                "going_on": GOING_ON,
                "answer": HANDED,
                **TAKEN,
            }
            rows = yield Statement(self.queries.library.variant("finish", **parts), parameters, alone=True)
            if rows:
                return self.rows.job(rows[0])
        return None

    def finish_adds(self, job: NewJob) -> bool:
        return not (job.id_given or job.unique_key or job.order_key or job.blockers)

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
        each = [
            self.queries.library.variant("prune_slots", number=str(number)).statements[0]
            for number in range(RING_SLOTS)
        ]
        return " UNION ALL ".join(each)

    def vacuum(self) -> Operation[None]:
        for name in ("jobs", "edges", "history", "keys", "tallies", "schedules", "workers", "queues"):
            query = self.queries.library.made((f"vacuum {name}",), lambda name=name: f"VACUUM {{{name}}}")  # type: ignore[misc]
            yield Statement(query, alone=True, patient=True)

    def hint(self, hints: Sequence[Hint]) -> Operation[None]:
        if hints and self.notify:
            yield self.queries.statement("hint", alone=True, texts=sorted({hint.encode() for hint in hints}))

    def name_tenant(self, tenant: str) -> Operation[None]:
        yield self.queries.statement("name_tenant", tenant=tenant)


def _following(settlements: Sequence[Settlement]) -> dict[str, Any]:
    """The next jobs of chains, as the statement that completes the ones before takes them."""
    pairs = [(one.id, one.continues) for one in settlements if one.continues is not None]
    rows = msgspec.json.encode([job for _, job in pairs]).decode()
    return {"before": Uuids([id for id, _ in pairs]), "rows": rows}


def _in_two_arrays(keys: Collection[OrderKey]) -> dict[str, Any]:
    return {"tenants": [tenant for tenant, _ in keys], "order_keys": [key for _, key in keys]}

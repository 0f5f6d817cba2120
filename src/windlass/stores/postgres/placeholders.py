"""The placeholders of PostgreSQL's queries: names of tables, rules that several queries share, lists of columns."""

from __future__ import annotations

import zlib
from datetime import timedelta

from ...policy import KEEP_FAILED_SECONDS, KEEP_SECONDS, PARTIAL
from ..columns import Column, Columns, Use
from ..sql.rendering import Renderer

TABLES = "jobs history keys queues tallies migrations workers state edges seq schedules".split()
RING_SLOTS = 32
RING_DAYS = 30  # a slot of the ring, with jobs that are kept for so long at most, is emptied by TRUNCATE

# As text: the driver has no loader for the enum, and a payload is decoded by its task.
READ = {"state": "j.state::text", "input": "j.input::text", "chain_id": "nullif(j.chain_id, j.id)"}

# The driver gives a `json` as text (`finish.register`).
CLAIMED = {"chain_id": READ["chain_id"]}

ENQUEUE = {
    "state": "$state::{state}",
    "run_at": "greatest(coalesce($run_at, {now}) + make_interval(secs => $delay_seconds), "
    "CASE WHEN $order_key IS NOT NULL OR NOT $of_tick THEN {now} END)",
    "created_at": "{now}",
    "input": "$input::json",
    "expires_at": "coalesce($expires_at, {now} + make_interval(secs => $expires_seconds))",
    "unique_held": "coalesce($unique_until IN ('claimed', 'finished'), false)",
    "chain_id": "coalesce($chain_id, $id)",
    "lane": "CASE WHEN $order_key IS NOT NULL THEN 0 END",
    "seq": "CASE WHEN $order_key IS NOT NULL THEN coalesce($seq, nextval('{seq}')) END",
}
ENQUEUE_ONE = ENQUEUE | {"seq": "CASE WHEN $order_key IS NOT NULL THEN nextval('{seq}') END"}

# The next job of a chain, in the statement that completes the one before it.
NEXT = ENQUEUE | {
    "state": "{next_state}",
    "run_at": "greatest($run_at, {now}) + make_interval(secs => $delay_seconds)",
}

HISTORY = {
    "finished_at": "{now}",
    "purge_at": "{now} + make_interval(secs => nullif(stay, -1))",
    "state": "new_state",
    "error": "new_error",
    "attempts": "coalesce(story, attempts)",
    "progress": "coalesce(said, progress)",
}

RETRY = {
    "state": "CASE WHEN (SELECT bool_or(NOT e.done) FROM {edges} AS e WHERE e.job_id = gone.id) "
    "THEN 'blocked'::{state} ELSE 'pending' END",
    "run_at": "{now}",
    "unique_held": "coalesce(unique_until = 'finished', false)",
    "lane": "CASE WHEN order_key IS NOT NULL THEN 0 END",
    "seq": "CASE WHEN order_key IS NOT NULL THEN nextval('{seq}') END",
    "blockers_left": "(SELECT CASE WHEN bool_and(e.done) THEN 0 END FROM {edges} AS e WHERE e.job_id = gone.id)",
}

DAY = "floor(extract(epoch FROM {now} + make_interval(secs => {stay})) / 86400)::integer"


def make_placeholders(
    schema: str, prefix: str, channel: str, lists: dict[str, str], clock_offset: timedelta
) -> dict[str, str]:
    """`lists`: those of `of_columns`."""
    offset = clock_offset // timedelta(microseconds=1)
    return {name: f'"{schema}"."{prefix}{name}"' for name in TABLES} | lists | {
        "schema": schema,
        "prefix": prefix,
        "channel": channel,
        "lock_space": str(zlib.crc32(f"{schema}.{prefix}".encode()) - 2**31),
        "now": f"(now() + interval '{offset} microseconds')" if offset else "now()",
        "true": "true",
        "false": "false",
        "uuid": "uuid",
        "alias": "j.",
        "any_type": "chr(31)",
        "in_ids": "= ANY(CAST(:ids AS uuid[]))",
        "typed": "AND type = ANY(:types::text[])",
        "is_paused": "EXISTS (SELECT FROM {queues} AS q WHERE q.name = $1 AND q.paused_at IS NOT NULL)",
        # The parameter is parsed once in a statement, and only if a row leaves something to its task.
        "policy": "coalesce((SELECT :policies::jsonb) -> j.type, (SELECT :policies::jsonb) -> '')",
        # Whether the enqueuer did not know the task, so that the claim adds the options that are missing.
        "is_partial": f"starts_with(j.policy, '{PARTIAL}')",
        "is_unresolved": "(j.lease_seconds IS NULL OR {is_partial})",
        # Whether the next attempt is the last one, and whether the current attempt is. NULL: there is no limit.
        "is_last_next": "(j.attempt + 1 >= nullif("
        "coalesce(j.max_attempts, ({policy} ->> 'max_attempts')::integer), 0))",
        "is_last_now": "(j.attempt >= nullif(j.max_attempts, 0))",
        # How long the job is kept: the rule of `policy.kept_seconds`.
        "stay": "coalesce(j.keep_seconds, "
        f"CASE WHEN g.new_state = 'failed' THEN {KEEP_FAILED_SECONDS} ELSE {KEEP_SECONDS} END)",
        "slot": f"(CASE WHEN {{stay}} BETWEEN 1 AND {RING_DAYS * 86_400} THEN mod({DAY}, {RING_SLOTS}) "
        f"ELSE {RING_SLOTS} END)::smallint",
    }  # fmt: skip


def of_columns(columns: Columns) -> dict[str, str]:
    renderer = Renderer(columns, "postgres")
    given, of_next = renderer.used(Use.GIVEN), renderer.used(Use.GIVEN, Use.PLAIN)
    shared = renderer.placeholders(
        read=READ,
        claimed=CLAIMED,
        alias="j.",
        enqueue=ENQUEUE_ONE,
        parameter=parameter,
        history=HISTORY,
        ended="",
        retry=RETRY,
    )
    return shared | {
        "enqueued_rows": renderer.values(Use.ENQUEUE, ENQUEUE, lambda column: column.name),
        "given_types": renderer.typed(given),
        "next_columns": renderer.names(Use.PLAIN),
        "next_values": renderer.values(Use.PLAIN, NEXT, lambda column: f"n.{column.name}"),
        "next_names": ", ".join(column.name for column in of_next),
        "next_types": renderer.typed(of_next),
        "next_given": ", ".join(f"{parameter(column)} AS {column.name}" for column in of_next if column.name != "id"),
    }


def parameter(column: Column) -> str:
    return f":{column.name}::{column.postgres}"

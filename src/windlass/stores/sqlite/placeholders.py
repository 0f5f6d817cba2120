"""The placeholders of SQLite's queries: names of tables, rules that several queries share, lists of columns."""

from __future__ import annotations

from datetime import timedelta

from ...policy import KEEP_FAILED_SECONDS, KEEP_SECONDS, PARTIAL
from ..columns import Columns
from ..sql.rendering import Renderer

TABLES = "jobs history keys queues tallies migrations workers edges schedules".split()

# SQLite's clock counts milliseconds.
NOW = "(CAST(round((julianday('now') - 2440587.5) * 86400000) AS integer) * 1000)"

READ = {"chain_id": "nullif(chain_id, id)"}

ENQUEUE = {
    "run_at": "max(coalesce($run_at, {now}) + CAST($delay_seconds * 1000000 AS integer), "
    "iif($order_key IS NULL AND $of_tick, -1 << 63, {now}))",
    "created_at": "{now}",
    "expires_at": "coalesce($expires_at, {now} + CAST($expires_seconds * 1000000 AS integer))",
    "unique_held": "coalesce($unique_until IN ('claimed', 'finished'), 0)",
    "chain_id": "coalesce($chain_id, $id)",
    "lane": "iif($order_key IS NULL, NULL, 0)",
    "seq": "NULL",  # the rowid tells the order until the job is in line
}

HISTORY = {
    "finished_at": "{now}",
    "purge_at": "{now} + nullif({stay}, -1) * 1000000",
    "state": "{new_state}",
    "output": "g.output",
    "error": "{new_error}",
    "attempts": "coalesce({new_attempts}, j.attempts)",
    "progress": "coalesce({new_progress}, j.progress)",
}

RETRY = {
    "state": "iif((SELECT min(e.done) FROM {edges} AS e WHERE e.job_id = h.id) = 0, 'blocked', 'pending')",
    "run_at": "{now}",
    "unique_held": "coalesce(unique_until = 'finished', 0)",
    "lane": "iif(order_key IS NULL, NULL, 0)",
    "seq": "NULL",
    "blockers_left": "(SELECT iif(min(e.done) = 1, 0, NULL) FROM {edges} AS e WHERE e.job_id = h.id)",
}


def make_placeholders(prefix: str, lists: dict[str, str], clock_offset: timedelta) -> dict[str, str]:
    """`lists`: those of `of_columns`."""
    offset = clock_offset // timedelta(microseconds=1)
    return {name: f"{prefix}{name}" for name in TABLES} | lists | {
        "prefix": prefix,
        "now": f"({NOW} + {offset})" if offset else NOW,
        "true": "1",
        "false": "0",
        "state": "text",
        "uuid": "text",
        "alias": "",  # RETURNING knows no alias
        "any_type": "char(31)",
        "in_ids": "IN (SELECT value FROM json_each(:ids))",
        "typed": "AND type IN (SELECT value FROM json_each(:types))",
        "is_paused": "EXISTS (SELECT 1 FROM {queues} AS q WHERE q.name = $1 AND q.paused_at IS NOT NULL)",
        # The policy of the row's type, or the default under the empty name. The query adds a path in it.
        "policy": "json_extract((SELECT value FROM json_each(:policies) WHERE key IN (j.type, '') "
        "ORDER BY key DESC LIMIT 1),",
        # Whether the enqueuer did not know the task, so that the claim adds the options that are missing.
        "is_partial": f"substr(policy, 1, {len(PARTIAL)}) = '{PARTIAL}'",
        "is_unresolved": "(lease_seconds IS NULL OR {is_partial})",
        # Whether the next attempt is the last one. NULL: there is no limit.
        "is_last_next": "(attempt + 1 >= nullif(coalesce(max_attempts, {policy} '$.max_attempts')), 0))",
        # How long the job is kept: the rule of `policy.kept_seconds`.
        "stay": f"coalesce(j.keep_seconds, iif({{new_state}} = 'failed', {KEEP_FAILED_SECONDS}, {KEEP_SECONDS}))",
    }  # fmt: skip


def of_columns(columns: Columns) -> dict[str, str]:
    renderer = Renderer(columns, "sqlite")
    return renderer.placeholders(
        read=READ, claimed=READ, alias="", enqueue=ENQUEUE, parameter=lambda column: f":{column.name}", history=HISTORY,
        ended="j.", retry=RETRY,
    )  # fmt: skip

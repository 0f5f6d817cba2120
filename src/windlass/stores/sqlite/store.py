"""SQLite as a job queue: one file, no set-up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import Any, ClassVar
from uuid import UUID

import msgspec

from ...clock import Clock
from ...job import NewJob
from ...lifecycle import PENDING
from ...operation import Operation, Statement
from ...outcome import Settlement
from ...policy import DEFAULT, KEEP_FAILED_SECONDS, KEEP_SECONDS, PARTIAL
from ..names import check_name
from ..sql.entangling import Lane
from ..sql.rows import SQLITE_ROWS, RowReader
from ..sql.store import PLAIN, SqlStore
from ..store import Change, ClaimRequest
from .connections import SqliteConnections
from .given import in_lists
from .wakeup import SqliteWakeup

# The clock of SQLite counts milliseconds.
NOW = "(CAST(round((julianday('now') - 2440587.5) * 86400000) AS integer) * 1000)"

HISTORY_COLUMNS = (
    "id run_at created_at finished_at purge_at state attempt rank chain_index chain_id queue type tenant input output "
    "max_attempts lease_seconds keep_seconds policy token worker claimed_at expires_at unique_key unique_scope "
    "unique_until order_key schedule labels error attempts progress trace if_failed chain_trace"
).split()


class SqliteStore(SqlStore):
    package: ClassVar[str] = "windlass.stores.sqlite"
    rows: ClassVar[RowReader] = SQLITE_ROWS
    has_one_writer: ClassVar[bool] = True

    def __init__(
        self, path: str, *, prefix: str = "windlass_", journal_mode: str | None = None, clock: Clock | None = None
    ) -> None:
        super().__init__(clock)
        self.prefix = check_name("prefix", prefix)
        self.wakeup = SqliteWakeup(path)
        self.connections = SqliteConnections(path, journal_mode, f"{prefix}jobs")

    def placeholders(self) -> dict[str, str]:
        tables = ("jobs", "history", "keys", "queues", "tallies", "migrations", "workers", "edges", "schedules")
        names = {name: f"{self.prefix}{name}" for name in tables}
        offset = self.clock.offset // timedelta(microseconds=1)
        return names | {
            "prefix": self.prefix,
            "state": "text",
            "partial": PARTIAL,
            "any_type": "char(31)",
            "keep_default": str(KEEP_SECONDS),
            "uuid": "text",
            "moment": "integer",
            "read_chain_id": "nullif(chain_id, id)",
            "alias": "",  # RETURNING knows no alias
            "now": f"({NOW} + {offset})" if offset else NOW,
            "keep": f"coalesce(keep_seconds, {DEFAULT.keep_seconds})",
            "stay": f"iif(g.state = 'failed' AND {{keep}} = {KEEP_SECONDS}, {KEEP_FAILED_SECONDS}, {{keep}})",
            # The policy of the row's type, or the default under the empty name; a path in it is to follow.
            "policy": "json_extract((SELECT value FROM json_each(:policies) WHERE key IN (j.type, '') "
            "ORDER BY key DESC LIMIT 1),",
            "history_columns": ", ".join(HISTORY_COLUMNS),
            "typed": "AND type IN (SELECT value FROM json_each(:types))",
            "in_ids": "IN (SELECT value FROM json_each(:ids))",
            "true": "1",
            "false": "0",
        }

    def array(self, values: Sequence[Any]) -> str:
        return msgspec.json.encode(list(values)).decode()

    def many(
        self, name: str, rows: Sequence[msgspec.Struct], *, alone: bool = False, now: int | None = None
    ) -> Statement:
        return self._each(name, [msgspec.structs.asdict(row) for row in rows], now, alone=alone and len(rows) == 1)

    def _each(self, name: str, each: list[dict[str, Any]], now: int | None, *, alone: bool = False) -> Statement:
        if now is None:
            return Statement(self.sql[name], each=each, alone=alone)
        for one in each:
            one["now"] = now
        return Statement(self.sql.variant(name, now=":now"), each=each, alone=alone)

    def moment(self, count: int) -> Operation[int | None]:
        """SQLite reads its clock anew for each row that it is given."""
        if count < 2:
            return None
        ((now,),) = yield self.statement("now")
        return int(now)

    def replace_job(self, job: NewJob, now: int | None) -> Statement:
        return self.many("replace_job", [job], now=now)

    def claim_parts(self, request: ClaimRequest) -> dict[str, str]:
        return {}

    def finish(self, settlements: Sequence[Settlement], *, alone: bool, plain: bool = True) -> Operation[set[UUID]]:
        given = [
            (str(one.id), one.token and str(one.token), one.state, one.output, one.error, one.attempts, one.progress)
            for one in settlements
        ]
        ended: dict[str, tuple[str, str, int]] = {}
        for values, places in in_lists(given):
            rows = yield Statement(
                self.sql.variant("finish", given=values, plain=PLAIN if plain else ""), places=places
            )
            ended.update({id: (queue, type, keep) for id, queue, type, keep in rows})
        states = {id: state for id, _, state, *_ in given}
        yield self._tally(Counter((queue, type, states[id]) for id, (queue, type, keep) in ended.items() if keep), 1)
        return {one.id for one, (id, *_) in zip(settlements, given, strict=True) if id not in ended}

    def _tally(self, counts: Counter[tuple[str, str, str]], sign: int) -> Statement:
        each = [
            {"queue": queue, "type": type, "state": state, "count": sign * count}
            for (queue, type, state), count in sorted(counts.items())
        ]
        return Statement(self.sql["tally"], each=each)

    def lock_lanes(self, lanes: Sequence[Lane]) -> Operation[None]:
        yield from ()  # whoever writes is alone

    def one_at_a_time(self) -> Operation[None]:
        yield from ()

    def members(self, chains: Sequence[UUID], *, locked: bool) -> Statement:
        return Statement(self.sql.variant("chain_members", locked=""), {"ids": self.array(chains)})

    def try_lanes(self, lanes: Sequence[Lane]) -> Operation[Sequence[Lane]]:
        yield from ()
        return lanes

    def hold_ends(self, chains: Sequence[UUID]) -> Operation[set[UUID]]:
        yield from ()
        return set()

    def arriving_lanes(self, limit: int, busy: Collection[Lane]) -> Statement:
        return Statement(self.sql.variant("arriving_lanes", of_others=""), {"limit": limit})  # nothing is ever busy

    def arriving_blocked(self, limit: int, busy: Collection[UUID]) -> Statement:
        return Statement(self.sql.variant("arriving_blocked", of_others=""), {"limit": limit})

    def of_lanes(self, name: str, lanes: Sequence[Lane]) -> Statement:
        return self.statement(name, pairs=self.array(lanes))

    def of_ends(self, ends: Sequence[tuple[UUID, str | None]], jobs: Sequence[UUID] | None) -> Statement:
        parameters = {"given": self.array(ends)} | ({} if jobs is None else {"ids": self.array(jobs)})
        query = self.sql.variant("mark_done", of_jobs="" if jobs is None else "AND e.job_id {in_ids}")
        return Statement(query, parameters)

    def of_counts(self, name: str, counts: Counter[UUID]) -> Statement:
        return self.statement(name, given=self.array(list(counts.items())))

    def take_back(self, ids: Sequence[UUID]) -> Operation[dict[UUID, Change]]:
        now = yield from self.moment(len(ids))
        rows = yield self._each("bring_back", [{"id": id} for id in ids], now)
        yield self._tally(Counter((row[1], row[2], row[3]) for row in rows), -1)
        return {(id := UUID(row[0])): Change(id, True, PENDING, row[1]) for row in rows}

    def remove(self, ids: Sequence[UUID]) -> Operation[dict[UUID, Change]]:
        live = yield self.statement("delete_live", ids=self.array(ids))
        finished = yield self.statement("delete_finished", ids=self.array(ids))
        yield self._tally(Counter((row[1], row[3], row[2]) for row in finished), -1)
        done = {(id := UUID(row[0])): Change(id, True, row[2], row[1]) for row in [*live, *finished]}
        yield self.statement("delete_keys", ids=self.array(sorted(done)))
        yield self.statement("delete_edges", ids=self.array(sorted(done)))
        return done

    def prune(self, limit: int) -> Operation[int]:
        yield self.statement("prune_keys")
        yield self.statement("prune_edges", limit=limit)
        rows = yield self.statement("prune_rows", limit=limit)
        yield self._tally(Counter((row[0], row[1], row[2]) for row in rows), -1)
        return len(rows)

    def vacuum(self) -> Operation[None]:
        yield Statement(self.sql.made(("vacuum",), lambda: "VACUUM"), alone=True)

"""SQLite's dialect: one writer at a time, so that it needs few locks."""

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
from ..sql.query import Queries, sqlite_rows
from ..store import Change, ClaimRequest, Enqueued
from ..wakeup import Hint
from .examination import Examination
from .placeholders import make_placeholders, of_columns
from .values_list import in_lists

# The settlements. Most batches only complete: three values for each job are quicker to bind than seven.
COMPLETED_ONLY = {
    "given_columns": "id, token, output",
    "new_state": "'completed'", "new_error": "NULL", "new_attempts": "NULL", "new_progress": "NULL",
}  # fmt: skip
ANY_END = {
    "given_columns": "id, token, output, state, error, attempts, progress",
    "new_state": "g.state", "new_error": "g.error", "new_attempts": "g.attempts", "new_progress": "g.progress",
}  # fmt: skip


class SqliteDialect:
    """A `Dialect`."""

    has_one_writer = True

    def __init__(self, prefix: str, columns: Columns, clock: Clock) -> None:
        check_name("prefix", prefix)
        self.rows = sqlite_rows(columns)
        lists = of_columns(columns)
        self.queries = Queries("windlass.stores.sqlite", clock, lambda offset: make_placeholders(prefix, lists, offset))
        self.examine = Examination(self.queries).examine

    def array(self, values: Sequence[Any]) -> str:
        return msgspec.json.encode(list(values)).decode()

    def many(
        self, name: str, rows: Sequence[msgspec.Struct], *, alone: bool = False, now: int | None = None
    ) -> Statement:
        return self._each(name, [msgspec.structs.asdict(row) for row in rows], now, alone=alone and len(rows) == 1)

    def _each(self, name: str, each: list[dict[str, Any]], now: int | None, *, alone: bool = False) -> Statement:
        if now is None:
            return Statement(self.queries.library[name], each=each, alone=alone)
        for one in each:
            one["now"] = now
        return Statement(self.queries.library.variant(name, now=":now"), each=each, alone=alone)

    def fixed_now(self, count: int) -> Operation[int | None]:
        """SQLite reads its clock again for each row."""
        if count < 2:
            return None
        ((now,),) = yield self.queries.statement("now")
        return int(now)

    def replace_job(self, job: NewJob, now: int | None) -> Statement:
        return self.many("replace_job", [job], now=now)

    def bulk(self, jobs: Sequence[NewJob]) -> Operation[list[Enqueued] | None]:
        yield from ()
        return None

    def lock_cycle_check(self) -> Operation[None]:
        yield from ()  # there is one writer

    def claim_parts(self, request: ClaimRequest) -> dict[str, str]:
        which = "WHERE NOT coalesce(last, 0)" if request.prefetch else ""
        begun = "NULL" if request.prefetch or request.begun else "iif({is_last_next}, 0, NULL)"
        return {"which": which, "begun": begun}

    def finish(self, settlements: Sequence[Settlement], *, alone: bool, plain: bool = True) -> Operation[set[UUID]]:
        only_completed = all(one.state == COMPLETED and one.progress is None for one in settlements)
        given: list[tuple[Any, ...]] = []
        token = text = None
        for one in settlements:
            if one.token is not token:  # a token comes many times in a row
                token, text = one.token, one.token and str(one.token)
            row = (str(one.id), text, one.output)
            given.append(row if only_completed else (*row, one.state, one.error, one.attempts, one.progress))
        parts = (COMPLETED_ONLY if only_completed else ANY_END) | {"plain": PLAIN if plain else ""}
        ended: dict[str, tuple[str, str, bool]] = {}
        for values, places in in_lists(given):
            rows = yield Statement(self.queries.library.variant("finish", given=values, **parts), places=places)
            ended.update({id: (queue, type, kept) for id, queue, type, kept in rows})
        states = {row[0]: one.state for row, one in zip(given, settlements, strict=True)}
        yield self._tally(Counter((queue, type, states[id]) for id, (queue, type, kept) in ended.items() if kept), 1)
        return {one.id for one, (id, *_) in zip(settlements, given, strict=True) if id not in ended}

    def _tally(self, counts: Counter[tuple[str, str, str]], sign: int) -> Statement:
        each = [
            {"queue": queue, "type": type, "state": state, "count": sign * count}
            for (queue, type, state), count in sorted(counts.items())
        ]
        return Statement(self.queries.library["tally"], each=each)

    def finish_adds(self, job: NewJob) -> bool:
        return False

    def hand_over(self, settlement: Settlement, token: UUID, worker: str) -> Operation[Job | None]:
        yield from ()
        return None

    def lock_order_keys(self, keys: Sequence[OrderKey]) -> Operation[None]:
        yield from ()

    def try_order_keys(self, keys: Sequence[OrderKey]) -> Operation[Sequence[OrderKey]]:
        yield from ()
        return keys

    def promote(self, keys: Sequence[OrderKey]) -> Statement:
        return self.queries.statement("promote", pairs=self.array(keys))

    def lock_ends(self, chains: Sequence[UUID]) -> Operation[set[UUID]]:
        yield from ()
        return set()

    def arriving_ordered(self, limit: int, busy: Collection[OrderKey]) -> Statement:
        return self.queries.statement("arriving_ordered", limit=limit)  # no key is ever busy

    def arriving_blocked(self, limit: int, busy: Collection[UUID]) -> Statement:
        return self.queries.statement("arriving_blocked", limit=limit)

    def mark_done(self, ends: Sequence[ChainEnd], jobs: Sequence[UUID] | None) -> Statement:
        parameters = {"given": self.array(ends)} | ({} if jobs is None else {"ids": self.array(jobs)})
        query = self.queries.library.variant("mark_done", of_jobs="" if jobs is None else "AND e.job_id {in_ids}")
        return Statement(query, parameters)

    def unblock(self, counts: Counter[UUID]) -> Statement:
        return self.queries.statement("unblock", given=self.array(list(counts.items())))

    def members(self, chains: Sequence[UUID], *, locked: bool) -> Statement:
        return self.queries.statement("chain_members", ids=self.array(chains))

    def retry(self, ids: Sequence[UUID]) -> Operation[dict[UUID, Change]]:
        now = yield from self.fixed_now(len(ids))
        rows = yield self._each("retry", [{"id": id} for id in ids], now)
        yield self._tally(Counter((row[1], row[2], row[3]) for row in rows), -1)
        return {(id := UUID(row[0])): Change(id, True, PENDING, row[1]) for row in rows}

    def remove(self, chains: Sequence[UUID]) -> Operation[dict[UUID, Change]]:
        live = yield self.queries.statement("delete_live", ids=self.array(chains))
        finished = yield self.queries.statement("delete_finished", ids=self.array(chains))
        yield self._tally(Counter((row[1], row[3], row[2]) for row in finished), -1)
        done = {(id := UUID(row[0])): Change(id, True, row[2], row[1]) for row in [*live, *finished]}
        yield self.queries.statement("delete_keys", ids=self.array(sorted(done)))
        yield self.queries.statement("delete_edges", ids=self.array(sorted(done)))
        return done

    def prune(self, limit: int) -> Operation[int]:
        yield self.queries.statement("prune_keys")
        yield self.queries.statement("prune_edges", limit=limit)
        rows = yield self.queries.statement("prune_rows", limit=limit)
        yield self._tally(Counter((row[0], row[1], row[2]) for row in rows), -1)
        return len(rows)

    def vacuum(self) -> Operation[None]:
        yield Statement(self.queries.library.made(("vacuum",), lambda: "VACUUM"), alone=True)

    def hint(self, hints: Sequence[Hint]) -> Operation[None]:
        """Nothing: listeners see that the file has changed."""
        yield from ()

    def name_tenant(self, tenant: str) -> Operation[None]:
        """Nothing: SQLite has no row-level security."""
        yield from ()

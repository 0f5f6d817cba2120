"""What SQLite and PostgreSQL share: the operations, over queries of the same names in either folder.

A dialect says how it passes many rows, how it ends jobs, and how it prunes; the rest is here.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from operator import itemgetter
from typing import Any, ClassVar
from uuid import UUID, uuid4

import msgspec

from ...clock import Clock
from ...errors import SchemaMismatch
from ...job import Job
from ...lifecycle import CANCELLED, FINISHED, Event, allows
from ...operation import Current, Operation, Row, Rows, Statement
from ...outcome import Settlement, decide_any_rescue, decide_expiry, stagger_seconds
from ..store import Change, ClaimRequest, Counts, Tally
from ..wakeup import Hint
from .deleting import Deleting
from .enqueueing import Enqueueing
from .graph import GraphReading
from .places import Place
from .presence import Presence
from .query import Library, Query, migrations
from .rows import COLUMNS, COMMON, FINISHED_ONLY, LAST, LIVE_ONLY, RowReader
from .schedules import SCHEDULE_COLUMNS, Schedules
from .settling import Settling

START = {"after_rank": -32768, "after_run_at": datetime(1, 1, 1, tzinfo=UTC), "after_id": UUID(int=0)}
PLAIN = "AND NOT j.linked AND j.lane IS NULL"  # nobody hangs on it


class SqlStore(GraphReading, Enqueueing, Settling, Deleting, Presence, Schedules):
    """The operations of `windlass.stores.store.Store` in SQL."""

    package: ClassVar[str]
    rows: ClassVar[RowReader]
    min_compatible: ClassVar[Mapping[int, int]] = {1: 1, 2: 2}

    def __init__(self, clock: Clock | None = None) -> None:
        self.clock = clock or Clock()
        self.notify = True
        self._libraries: dict[timedelta, Library] = {}

    # What a dialect adds

    def placeholders(self) -> dict[str, str]:
        """Names of tables, and the dialect's own expressions."""
        raise NotImplementedError

    def claim_parts(self, request: ClaimRequest) -> dict[str, str]:
        """Parts of the claim that differ from request to request."""
        raise NotImplementedError

    def take_back(self, ids: Sequence[UUID]) -> Operation[dict[UUID, Change]]:
        """Move failed and cancelled jobs from history to live, where their keys allow it."""
        raise NotImplementedError

    # Queries

    @property
    def sql(self) -> Library:
        """The queries, with the clock's offset in them; without one in all but tests."""
        library = self._libraries.get(self.clock.offset)
        if library is None:
            names = self.placeholders()
            # One list for both tables, with NULLs of the right type for what one of them lacks.
            no_moment = f"CAST(NULL AS {names['moment']})"
            names["live_columns"] = (
                f"{_columns(names, [*COMMON, *LIVE_ONLY])}, CAST(NULL AS text), {no_moment}, {_columns(names, LAST)}"
            )
            names["finished_columns"] = (
                f"{_columns(names, COMMON)}, {no_moment}, {names['false']}, {_columns(names, FINISHED_ONLY)}, "
                f"CAST(NULL AS integer), {_columns(names, LAST[1:])}"
            )
            names["schedule_columns"] = SCHEDULE_COLUMNS
            library = self._libraries[self.clock.offset] = Library(self.package, names)
        return library

    def statement(self, name: str, /, *, alone: bool = False, **parameters: Any) -> Statement:
        return Statement(self.sql[name], parameters, alone=alone)

    # Schema

    def check_schema(self) -> Operation[bool]:
        exists = yield self.statement("schema_exists", alone=True)
        if not exists[0][0]:
            return False
        return self._is_current((yield self.statement("schema_version", alone=True)))

    def _is_current(self, versions: Rows) -> bool:
        known = max(migrations(self.package))[0]
        if versions and versions[-1][1] > known:
            raise SchemaMismatch(
                f"the database's schema (version {versions[-1][0]}) no longer admits this version of Windlass, which "
                f"knows schema {known}: upgrade Windlass here"
            )
        return bool(versions) and versions[-1][0] >= known

    def migrate(self) -> Operation[list[str]]:
        yield replace(self.statement("schema_lock"), patient=True)
        versions = yield self.statement("schema_version")
        self._is_current(versions)
        applied = {row[0] for row in versions}
        names = []
        for version, name, text in migrations(self.package):
            if version not in applied:
                yield Statement(self.sql.render(name, text), patient=True)
                yield self.statement(
                    "schema_record", version=version, name=name, min_compatible=self.min_compatible[version]
                )
                names.append(name)
        return names

    def script(self) -> str:
        """All in one transaction, with the records that tell `check_schema` of it."""
        parts: list[Query] = [self.sql["schema_lock"]]
        for version, name, text in migrations(self.package):
            record = self.sql["schema_record"].statements[0]
            record = record.replace(":version", str(version)).replace(":name", f"'{name}'")
            record = record.replace(":min_compatible", str(self.min_compatible[version]))
            parts += [self.sql.render(name, text), Query(f"{name} is applied", record)]
        listed = [f"-- {part.name}\n" + ";\n\n".join(part.statements) + ";" for part in parts]
        return "\n\n".join(["BEGIN;", *listed, "COMMIT;"])

    # A job's way

    def claim(self, request: ClaimRequest) -> Operation[list[Job]]:
        policies = {type: policy.to_json() for type, policy in request.policies.items()}
        policies[""] = request.default_policy.to_json()
        parameters: dict[str, Any] = {
            "queue": request.queue,
            "limit": request.limit,
            "token": request.token,
            "worker": request.worker,
            "lease_seconds": request.lease_seconds,
            "policies": msgspec.json.encode(policies).decode(),
            "max_bytes": request.max_bytes,
            "prefetch": request.prefetch,
            "begun": request.begun,
            **START,
        }
        if request.after is not None:
            after = request.after
            parameters |= {"after_rank": after.rank, "after_run_at": after.run_at, "after_id": after.id}
        if request.types is not None:
            parameters["types"] = self.array(request.types)
        if request.order_key is not None:
            parameters["order_key"] = request.order_key
            if request.tenant is not None:
                parameters["tenant"] = request.tenant
        parts = self.claim_parts(request)
        rows = yield self._typed("claim", parameters, parts)
        if not rows and request.prefetch:
            found = yield self._typed("look_past", parameters)
            if found:
                rows = yield self._typed("claim", parameters | self._just_before(found[0]), parts)
        return [self.rows.job(row) for row in _in_order(rows)]

    def _typed(self, name: str, parameters: dict[str, Any], parts: Mapping[str, str] | None = None) -> Statement:
        typed = "{typed}" if "types" in parameters else ""
        keyed = "AND j.lane = 2 AND j.order_key = :order_key" if "order_key" in parameters else ""
        keyed += " AND j.tenant = :tenant" if "tenant" in parameters else ""
        query = self.sql.variant(name, of_types=f"{typed} {keyed}", **(parts or {}))
        return Statement(query, parameters, alone=True)

    def _just_before(self, row: Row) -> dict[str, Any]:
        """The position from which a claim meets this job first."""
        rank, run_at, id = row
        moment, before = self.rows.to_datetime(run_at), UUID(int=self.rows.to_uuid(id).int - 1)
        return {"after_rank": rank, "after_run_at": moment, "after_id": before}

    def adopt(self, token: UUID) -> Operation[list[Job]]:
        rows = yield self.statement("adopt", alone=True, token=token)
        return [self.rows.job(row) for row in rows]

    def anyone_lost(self) -> Operation[bool]:
        rows = yield self.statement("find_expired", alone=True, limit=1, stale_before=None)
        return bool(rows)

    def rescue(self, limit: int, *, stale_before: datetime | None = None) -> Operation[list[Settlement]]:
        rows = yield self.statement("find_expired", alone=True, limit=limit, stale_before=stale_before)
        if rows:  # once more, now to keep them: mostly there are none, and then it was one statement
            rows = yield self.statement("find_expired", limit=limit, stale_before=stale_before)
        if not rows:
            return []
        # With a token of the rescuer's own the worker that was given up finds nothing that it could have written.
        token = uuid4()
        over = stagger_seconds(len(rows))
        settlements = [self._decide(row, token, over) for row in rows]
        yield self.statement("take_over", ids=self.array([one.id for one in settlements]), token=token)
        refused = {refusal.id for refusal in (yield from self.settle(settlements))}
        return [settlement for settlement in settlements if settlement.id not in refused]

    def _decide(self, row: Row, token: UUID, over: float) -> Settlement:
        id = self.rows.to_uuid(row[0])
        return decide_any_rescue(
            id, token, lambda: self.rows.job(row), random=random.random, stagger_seconds=over,
            begun=row[COLUMNS] in (None, True),
        )  # fmt: skip

    def expire(self, limit: int) -> Operation[list[Settlement]]:
        rows = yield self.statement("find_too_late", alone=True, limit=limit)
        if rows:
            rows = yield self.statement("find_too_late", limit=limit)
        settlements = [decide_expiry(self.rows.to_uuid(id), self._calendar(moment)) for id, moment in rows]
        refused = (yield from self.end(settlements, alone=False)) if settlements else set()
        return [settlement for settlement in settlements if settlement.id not in refused]

    def _calendar(self, moment: Any) -> datetime | None:
        """None for what no calendar has, such as PostgreSQL's -infinity: one such row must not stop the others."""
        try:
            return self.rows.to_datetime(moment)
        except (ValueError, OverflowError):
            return None

    # What people do to jobs

    def cancel(self, ids: Sequence[UUID]) -> Operation[list[Change]]:
        yield Current("others may wait for a job that is cancelled, or for their turn behind it")
        done: dict[UUID, Change] = {}
        left = sorted(set(ids))
        for _ in range(3):  # a job can be claimed or sent back between the two statements
            waiting = [Settlement(id=id, token=None, state=CANCELLED) for id in left]
            refused = yield from self.end(waiting, alone=False)
            done |= {id: Change(id, True, CANCELLED) for id in left if id not in refused}
            rows = yield self.statement("request_cancel", ids=self.array(sorted(refused)))
            done |= {(id := self.rows.to_uuid(row[0])): Change(id, True, "running", row[1]) for row in rows}
            left = [id for id in left if id not in done]
            places = yield from self.whereabouts(left)
            if all(place.state in FINISHED for place in places.values()):
                break
        return [done.get(id) or _unchanged(id, places.get(id)) for id in ids]

    def retry(self, ids: Sequence[UUID]) -> Operation[list[Change]]:
        return (yield from self._act("bring back", ids, self._bring_back))

    def _bring_back(self, ids: Sequence[UUID]) -> Operation[dict[UUID, Change]]:
        yield Current("a job that is brought back waits again for others, and others for it")
        done = yield from self.take_back(ids)
        # In a statement of its own: it sees who came to wait for one of them meanwhile.
        back = [id for id, change in done.items() if change.done]
        if back:
            yield self.statement("link_next", ids=self.array(back))
            # One that still has to wait for others is blocked again.
            places = yield from self.whereabouts(back)
            done |= {id: Change(id, True, places[id].state, places[id].queue) for id in back}
        return done

    def run_now(self, ids: Sequence[UUID]) -> Operation[list[Change]]:
        return (yield from self._act("run now", ids, self._make_due))

    def _make_due(self, ids: Sequence[UUID]) -> Operation[dict[UUID, Change]]:
        rows = yield self.statement("run_now", ids=self.array(ids))
        return {(id := self.rows.to_uuid(row[0])): Change(id, True, row[2], row[1]) for row in rows}

    def _act(
        self, event: Event, ids: Sequence[UUID], act: Callable[[Sequence[UUID]], Operation[dict[UUID, Change]]]
    ) -> Operation[list[Change]]:
        done: dict[UUID, Change] = {}
        places: dict[UUID, Place] = {}
        left = sorted(set(ids))
        for _ in range(3):  # a job can move between the two statements, to where it could be acted on
            done |= yield from act(left)
            left = [id for id in left if id not in done]
            if not left:
                break
            places |= yield from self.whereabouts(left)
            left = [id for id in left if id in places and allows(event, places[id].state)]
            if not left:
                break
        return [done.get(id) or _unchanged(id, places.get(id)) for id in ids]

    # Queues and upkeep

    def pause(self, queue: str) -> Operation[None]:
        yield self.statement("pause", alone=True, queue=queue)

    def resume(self, queue: str) -> Operation[None]:
        yield self.statement("resume", alone=True, queue=queue)

    def paused(self) -> Operation[list[str]]:
        rows = yield self.statement("paused", alone=True)
        return [row[0] for row in rows]

    def live_queues(self) -> Operation[list[str]]:
        rows = yield self.statement("live_queues", alone=True)
        return [row[0] for row in rows]

    def counts(self) -> Operation[Counts]:
        rows = yield self.statement("counts", alone=True)
        return Counts(Tally(*row) for row in rows)

    def name_tenant(self, tenant: str) -> Operation[None]:
        return  # no rule about rows could ask for it
        yield

    def hint(self, hints: Sequence[Hint]) -> Operation[None]:
        """Where a store's changes are seen without being told of, nothing."""
        yield from ()


def _unchanged(id: UUID, place: Place | None) -> Change:
    return Change(id, False, place.state if place else None)


def _columns(names: Mapping[str, str], columns: Iterable[str]) -> str:
    """A select list: each by its name, or as the dialect reads it."""
    return ", ".join(names.get(f"read_{name}", f"{names['alias']}{name}") for name in columns)


def _in_order(rows: Rows) -> Rows:
    """Claimed rows by rank, time and id: RETURNING knows no order. They mostly are so already."""
    try:
        return sorted(rows, key=itemgetter(5, 6, 0))
    except TypeError:
        return rows  # a row that was written by hand must stop no other

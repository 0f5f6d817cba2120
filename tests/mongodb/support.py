"""What the tests of the MongoDB store share."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID, uuid4

from pymongo import MongoClient

from windlass.job import Job, NewJob
from windlass.lifecycle import State
from windlass.operation import Interrupted, Request, Rows, Step
from windlass.outcome import Settlement
from windlass.stores.mongodb import MongoStore
from windlass.stores.mongodb.connections import HANDLE, SyncConnection
from windlass.stores.store import ClaimRequest, Enqueued, Refusal

DAY = 86_400


def new_id() -> UUID:
    """In the order of time, as UUIDv7 is."""
    return UUID(bytes=time.time_ns().to_bytes(8, "big") + os.urandom(8))


def new(**options: Any) -> NewJob:
    options = {"id": new_id(), "type": "t", "queue": "q", "input": "{}", **options}
    policy = {"max_attempts": 20, "lease_seconds": 60.0, "keep_seconds": DAY, "policy": "{}"}
    return NewJob(**{**policy, **options})


def enqueue(store: MongoStore, *jobs: NewJob, resent: bool = False) -> list[Enqueued]:
    return store.connections.run(lambda: store.enqueue(jobs, resent=resent))


def claim(store: MongoStore, limit: int = 10, token: UUID | None = None, **options: Any) -> list[Job]:
    options = {"queue": "q", "worker": "w", "token": token or uuid4(), **options}
    return store.connections.run(lambda: store.claim(ClaimRequest(limit=limit, **options)))


def settle(store: MongoStore, *settlements: Settlement) -> list[Refusal]:
    return store.connections.run(lambda: store.settle(settlements))


def settled(id: UUID, token: UUID | None, state: State = "completed", **more: Any) -> Settlement:
    return Settlement(id=id, token=token, state=state, **more)


def get(store: MongoStore, id: UUID) -> Job:
    (job,) = store.connections.run(lambda: store.get([id]))
    return job


def finish(store: MongoStore, state: State = "completed", **options: Any) -> UUID:
    """The id of a job that has gone its whole way."""
    job, token = new(**options), uuid4()
    enqueue(store, job)
    claim(store, token=token)
    assert settle(store, settled(job.id, token, state)) == []
    return job.id


def raw(store: MongoStore, collection: str) -> Any:
    """A collection, past the store."""
    client: MongoClient[Any] = store.connections.client()
    return client.get_database(store.connections.target.database, **HANDLE)[f"windlass_{collection}"]


def explain(store: MongoStore, request: Any) -> dict[str, Any]:
    """What the server did for a find."""
    filter, *rest = request.arguments
    command: dict[str, Any] = {"find": request.collection, "filter": filter}
    if rest and rest[0]:
        command["projection"] = rest[0]
    if "sort" in request.options:
        command["sort"] = dict(request.options["sort"])
    if "limit" in request.options:
        command["limit"] = abs(request.options["limit"])
    if "hint" in request.options:
        command["hint"] = request.options["hint"]
    database = raw(store, "jobs").database
    answer = database.command("explain", command, verbosity="executionStats", codec_options=HANDLE["codec_options"])
    stats: dict[str, Any] = answer["executionStats"]
    return stats


def indexes_used(stats: dict[str, Any]) -> set[str]:
    found: set[str] = set()

    def walk(stage: Any) -> None:
        if isinstance(stage, dict):
            if stage.get("stage") == "COLLSCAN":
                found.add("COLLSCAN")
            if "indexName" in stage:
                found.add(stage["indexName"])
            for part in stage.values():
                walk(part)
        elif isinstance(stage, list):
            for part in stage:
                walk(part)

    walk(stats["executionStages"])
    return found


class Disturbed:
    """A connection on which something happens, once, around the write to the jobs."""

    def __init__(
        self,
        store: MongoStore,
        *,
        before: Callable[[], object] | None = None,
        after: Callable[[], object] | None = None,
        lost: bool = False,
        only: int | None = None,
    ) -> None:
        self.connection = SyncConnection(store.connections.target, store.connections.client())
        self.jobs = store.context.jobs
        self.before, self.after, self.lost, self.only = before, after, lost, only
        self.steps: list[Step] = []

    def execute(self, step: Step) -> Rows:
        self.steps.append(step)
        if not isinstance(step, Request) or (step.collection, step.method) != (self.jobs, "bulk_write"):
            return self.connection.execute(step)
        before, self.before = self.before, None
        if before is not None:
            before()
        if self.only is not None:
            step = cut_short(step, self.only)
        rows: Rows = self.connection.execute(step) if self.only != 0 else ()
        after, self.after = self.after, None
        if after is not None:
            after()
        if self.lost:
            raise Interrupted("the answer was lost")
        return rows


def cut_short(step: Request, count: int) -> Request:
    """As far as the server got: the first of the writes."""
    return dataclasses.replace(step, arguments=(step.arguments[0][:count],))


def first_request(operation: Any, answers: Sequence[Any] = ()) -> Any:
    """The request that an operation makes after it was given these answers."""
    request = next(operation)
    for answer in answers:
        request = operation.send(answer)
    operation.close()
    return request

"""A small queue on a store, with what the tests of this folder do to it again and again."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any
from uuid import UUID, uuid4

from uuid_utils.compat import uuid7

from windlass.job import Job, NewJob
from windlass.lifecycle import State
from windlass.operation import Operation
from windlass.outcome import Settlement
from windlass.stores.store import ClaimRequest, Filter, Lease, Store

QUEUE, TYPE = "line", "work"


def new_job(**fields: Any) -> NewJob:
    given: dict[str, Any] = {"id": uuid7(), "type": TYPE, "queue": QUEUE, "input": "{}", "keep_seconds": 3600}
    return NewJob(**(given | fields))


class Scene:
    def __init__(self, store: Store) -> None:
        self.store = store

    def do(self, name: str, *arguments: Any, **options: Any) -> Any:
        """One operation of the store, on a connection that none of the actors has."""
        operation = getattr(self.store, name)
        return self.store.connections.run(lambda: operation(*arguments, **options))

    # What is there before

    def waiting(self, **fields: Any) -> UUID:
        """A job that is due."""
        new = new_job(**fields)
        self.do("enqueue", [new])
        return new.id

    def running(self, **fields: Any) -> tuple[UUID, UUID]:
        """A job and the token of whoever holds it."""
        id, token = self.waiting(**fields), uuid4()
        (job,) = self.do("claim", self.request(token=token))
        assert job.id == id
        return id, token

    def abandoned(self, **fields: Any) -> tuple[UUID, UUID]:
        """A running job whose lease has run out."""
        id, token = self.waiting(**fields), uuid4()
        self.do("claim", self.request(token=token, lease_seconds=0.001))
        time.sleep(0.005)
        return id, token

    def failed(self, **fields: Any) -> UUID:
        id, token = self.running(**fields)
        self.do("settle", [settlement(id, token, "failed")])
        return id

    # What the actors do

    def request(self, **fields: Any) -> ClaimRequest:
        given: dict[str, Any] = {"queue": QUEUE, "limit": 10, "token": uuid4(), "worker": "one"}
        return ClaimRequest(**(given | fields))

    def claim(self, **fields: Any) -> Operation[list[Job]]:
        return self.store.claim(self.request(**fields))

    def renew(self, id: UUID, token: UUID) -> Operation[Any]:
        return self.store.renew([Lease(id, token, 60.0)])

    # What is there afterwards

    def all(self) -> list[Job]:
        found: list[Job] = self.do("list", Filter(), 1000)
        return found

    def job(self, id: UUID) -> Job:
        (job,) = self.do("get", [id])
        assert isinstance(job, Job)
        return job

    def state(self, id: UUID) -> State:
        return self.job(id).state

    def check_consistency(self) -> None:
        """No job is there twice, the counts are right, and what waits can be claimed."""
        jobs = self.all()
        assert len({job.id for job in jobs}) == len(jobs), f"a job is there twice: {jobs}"
        counted = {state: count for state, count in self.do("counts").items() if count}
        assert counted == Counter(job.state for job in jobs)
        for queue in self.do("paused"):
            self.do("resume", queue)
        waiting = {job.id for job in jobs if job.state == "pending"}
        self.do("run_now", sorted(waiting))
        assert {job.id for job in self.do("claim", self.request())} == waiting


def settlement(id: UUID, token: UUID | None, state: State, **more: Any) -> Settlement:
    return Settlement(id=id, token=token, state=state, **more)

"""`adopt` after a claim whose answer was lost: what the primary has is found, whether or not a majority has it yet."""

from __future__ import annotations

from uuid import uuid4

from pymongo import WriteConcern

from windlass.stores.mongodb import MongoStore

from .support import enqueue, new, raw


def test_a_claim_that_was_written_a_moment_ago_is_found(store: MongoStore) -> None:
    jobs = raw(store, "jobs").with_options(write_concern=WriteConcern(1))
    for _ in range(30):
        job, token = new(), uuid4()
        enqueue(store, job)
        jobs.update_one({"_id": job.id}, {"$set": {"state": "running", "token": token}, "$inc": {"attempt": 1}})
        assert [one.id for one in store.connections.run(lambda: store.adopt(token))] == [job.id]  # noqa: B023

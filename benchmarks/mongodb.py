"""MongoDB: Windlass against the usual way, one `find_one_and_update` and one `update_one` for each job."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from pymongo import ASCENDING, MongoClient

from windlass.stores.mongodb.store import MongoStore

from .measure import Figure, drain, enqueue, in_turn, new_jobs, seconds

BATCH = 500


def measure_mongodb(url: str, jobs: int) -> list[Figure]:
    client: MongoClient[dict[str, Any]] = MongoClient(url, uuidRepresentation="standard", w="majority")
    name = client.get_default_database("windlass").name
    prefix = f"bench_{uuid4().hex[:8]}_"
    store = MongoStore(url, prefix=prefix)
    store.connections.run(store.migrate)
    adding: list[float] = []
    few = max(200, jobs // 25)  # a sample is enough for the rate, because one by one is slow

    def ours() -> float:
        made = new_jobs(jobs)
        adding.append(seconds(lambda: enqueue(store, made)))
        return seconds(lambda: drain(store, BATCH)) / jobs

    def one_by_one() -> float:
        plain = client[name][f"{prefix}plain"]
        plain.drop()
        plain.create_index([("queue", ASCENDING), ("rank", ASCENDING), ("run_at", ASCENDING), ("_id", ASCENDING)])
        plain.insert_many(
            [
                {"_id": job.id, "queue": "bench", "state": "pending", "rank": 0, "run_at": 0, "input": job.input}
                for job in new_jobs(few)
            ]
        )
        return seconds(lambda: _one_by_one(plain)) / few

    own, single = in_turn(ours, one_by_one)
    for collection in client[name].list_collection_names():
        if collection.startswith(prefix):
            client[name].drop_collection(collection)
    store.connections.close()
    client.close()
    return [
        Figure("mongodb", "bulk enqueue", jobs / sorted(adding)[len(adding) // 2]),
        Figure("mongodb", f"claim + complete, batch {BATCH}", 1 / own),
        Figure("mongodb", "… one by one with find_one_and_update", 1 / single),
        Figure("mongodb", "… against one by one", single / own, "×", wanted=5.0),
    ]


def _one_by_one(collection: Any) -> None:
    while True:
        job = collection.find_one_and_update(
            {"queue": "bench", "state": "pending", "run_at": {"$lte": 0}},
            {"$set": {"state": "running", "token": uuid4()}, "$inc": {"attempt": 1}},
            sort=[("rank", ASCENDING), ("run_at", ASCENDING), ("_id", ASCENDING)],
            return_document=True,
        )
        if job is None:
            return
        collection.update_one(
            {"_id": job["_id"], "token": job["token"]}, {"$set": {"state": "completed", "output": "null"}}
        )

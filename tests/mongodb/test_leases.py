"""Leases on MongoDB: a worker can be killed at any moment, and the server keeps a dead process's transaction open for
a minute. So a worker holds no transaction for what it does all the time."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from bson.binary import Binary
from pymongo import MongoClient

from windlass.operation import Begin, Operation
from windlass.stores.mongodb import MongoStore, skip_locked
from windlass.stores.store import Lease, Note

from .support import claim, enqueue, get, new, raw

HOLDS = """
import sys, time
from pymongo import MongoClient
client = MongoClient(sys.argv[1])
session = client.start_session()
session.start_transaction()
client.get_default_database()["windlass_jobs"].update_one({"type": "held"}, {"$set": {"x": 1}}, session=session)
print(session.session_id["id"].hex(), flush=True)
time.sleep(600)
"""


def steps_of(store: MongoStore, make: Callable[[], Operation[Any]]) -> list[object]:
    """The operation, carried out; the steps that it took."""
    seen: list[object] = []

    def watched() -> Operation[Any]:
        operation = make()
        try:
            step = next(operation)
            while True:
                seen.append(step)
                try:
                    rows = yield step
                except Exception as error:
                    step = operation.throw(error)
                else:
                    step = operation.send(rows)
        except StopIteration as stop:
            return stop.value

    store.connections.run(watched)
    return seen


@pytest.mark.parametrize("what", ["begin", "note", "renew", "hold", "rescue"])
def test_no_transaction_is_begun_for_leases_that_are_not_locked(
    store: MongoStore, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(skip_locked, "PLAINLY_SECONDS", 30.0)
    enqueue(store, *(new() for _ in range(5)))
    token = uuid4()
    jobs = claim(store, token=token)
    leases = [Lease(job.id, token, 60.0) for job in jobs]
    if what == "rescue":
        store.clock.move(timedelta(hours=1))
    deeds: dict[str, Callable[[], Operation[Any]]] = {
        "begin": lambda: store.begin(leases),
        "note": lambda: store.note([Note(job.id, token, "half") for job in jobs]),
        "renew": lambda: store.renew(leases),
        "hold": lambda: store.hold([token]),
        "rescue": lambda: store.rescue(10),
    }
    steps = steps_of(store, deeds[what])
    assert steps
    assert not [step for step in steps if isinstance(step, Begin)]
    assert all(getattr(step, "alone", True) for step in steps)


def test_jobs_beside_one_that_a_killed_process_has_locked_are_rescued_at_once(
    store: MongoStore, fresh_mongodb_url: str
) -> None:
    held, others = new(type="held"), [new() for _ in range(20)]
    enqueue(store, held, *others)
    assert len(claim(store, limit=30)) == 21
    holder = subprocess.Popen([sys.executable, "-c", HOLDS, fresh_mongodb_url], stdout=subprocess.PIPE, text=True)
    with holder:
        assert holder.stdout is not None
        session = Binary(bytes.fromhex(holder.stdout.readline()), 4)
        holder.kill()
    try:
        store.clock.move(timedelta(hours=1))
        began = time.monotonic()
        rescued = store.connections.run(lambda: store.rescue(100))
        assert {one.id for one in rescued} == {job.id for job in others}
        assert time.monotonic() - began < 5
        assert get(store, held.id).state == "running"
    finally:
        with MongoClient[Any](fresh_mongodb_url) as client:  # the dead process's transaction
            client.admin.command("killSessions", [{"id": session}])  # not all: other tests use this server
    assert raw(store, "jobs").count_documents({"state": "running"}) == 1


def test_an_url_with_a_timeout_of_its_own_makes_no_renewal_wait_for_a_lock(fresh_mongodb_url: str) -> None:
    store = MongoStore(f"{fresh_mongodb_url}&socketTimeoutMS=60000")
    store.connections.run(store.migrate)
    try:
        held, other = new(type="held"), new()
        enqueue(store, held, other)
        token = uuid4()
        assert len(claim(store, token=token)) == 2
        client = MongoClient[Any](fresh_mongodb_url)
        with client, client.start_session() as session, session.start_transaction():
            jobs = client.get_default_database()["windlass_jobs"]
            jobs.update_one({"type": "held"}, {"$set": {"x": 1}}, session=session)
            began = time.monotonic()
            leases = [Lease(job.id, token, 600.0) for job in (held, other)]
            renewals = store.connections.run(lambda: store.renew(leases))
            assert time.monotonic() - began < 15
            assert [renewal.locked for renewal in renewals] == [True, False]
    finally:
        store.connections.close()

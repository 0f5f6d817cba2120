"""Every request that grows with the history must not."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from bson import Timestamp
from uuid_utils.compat import uuid7

from tests.mongodb.support import explain, first_request, indexes_used, new, raw, settled
from windlass.clock import EPOCH
from windlass.stores.mongodb import MongoStore
from windlass.stores.mongodb.connections import HANDLE
from windlass.stores.mongodb.documents import to_key
from windlass.stores.mongodb.order_keys import OrderKeys
from windlass.stores.mongodb.settlement_writes import Member, ending_of, writes_of
from windlass.stores.store import Bookmark, ClaimRequest, Filter, Position

FINISHED, FUTURE, DUE, RUNNING, FAILED = 50_000, 10_000, 1_000, 200, 50
IN_LINE, LATER, LANES = 5_000, 2_000, 10


@pytest.fixture
def full(store: MongoStore) -> MongoStore:
    """Much that is finished or in the future, or waits for its turn; a little that is due, that runs, that failed."""
    now = datetime.now(UTC).replace(microsecond=0)
    documents = []

    def add(count: int, state: str, **fields: object) -> None:
        for position in range(count):
            document = store.context.documents.to_document(new(tenant="" if position % 100 else "acme"), now)
            if "due_at" in fields:
                del document["run_at"]
            documents.append({**document, "state": state, **fields})

    add(FINISHED, "completed", type="old", purge_at=now + timedelta(days=1), finished_at=now)
    add(FAILED, "failed", purge_at=now + timedelta(days=1), finished_at=now)
    add(FUTURE, "pending", run_at=now + timedelta(days=1))
    for rank in (-1, 0, 1):
        add(DUE // 3, "pending", rank=rank, run_at=now - timedelta(seconds=1))
    for key in range(LANES):
        ordered = {"order_key": f"key {key}", "due_at": now, "arrival": Timestamp(1, key)}
        add(IN_LINE // LANES, "pending", lane=1, place=now, **ordered)
        add(LATER // LANES, "pending", lane=0, arriving="in line", **{**ordered, "due_at": now + timedelta(days=1)})
    add(RUNNING, "running", token=uuid4(), leased_until=now - timedelta(seconds=1))
    raw(store, "jobs").insert_many(documents, ordered=False)
    return store


def test_plans(full: MongoStore) -> None:
    claims_follow_the_ready_index(full)
    claims_go_on_where_they_left_off(full)
    rescue_looks_at_running_jobs_alone(full)
    expiry_looks_at_what_is_too_late_alone(full)
    lists_use_their_indexes(full)
    live_queues_are_stepped_through(full)
    the_next_due_is_stepped_to(full)
    lines_are_stepped_to(full)
    admission_looks_at_what_has_arrived(full)
    writes_of_a_worker_look_at_its_jobs_alone(full)


def claim_request(store: MongoStore, **options: object) -> object:
    request = ClaimRequest(queue="q", limit=100, token=uuid4(), worker="w", **options)  # type: ignore[arg-type]
    return first_request(store.claim(request), [[{"paused": [], "now": datetime.now(UTC)}]])


def claims_follow_the_ready_index(store: MongoStore) -> None:
    for options, most in (({}, 110), ({"types": ["t"]}, 110)):
        stats = explain(store, claim_request(store, **options))
        assert indexes_used(stats) == {"ready"}
        assert stats["nReturned"] == 100
        assert stats["totalKeysExamined"] <= most
        assert "SORT" not in stage_names(stats)
    store.clock.move(timedelta(hours=1))  # a moved clock must not change the plan
    stats = explain(store, claim_request(store))
    assert indexes_used(stats) == {"ready"}
    assert stats["totalKeysExamined"] <= 110
    store.clock.move(timedelta(hours=-1))


def claims_go_on_where_they_left_off(store: MongoStore) -> None:
    """Also where the rank in which they left off has nothing but the future: that is skipped."""
    plain = {"state": "pending", "rank": 0, "lane": None}
    due = list(raw(store, "jobs").find(plain).sort([("run_at", 1), ("_id", 1)]).limit(330))
    after = Position(0, due[-1]["run_at"], due[-1]["_id"])
    stats = explain(store, claim_request(store, after=after))
    assert indexes_used(stats) == {"ready"}
    assert stats["nReturned"] == 100
    assert stats["totalKeysExamined"] <= 120
    assert "SORT" not in stage_names(stats)


def rescue_looks_at_running_jobs_alone(store: MongoStore) -> None:
    stats = explain(store, first_request(store.rescue(100)))
    assert indexes_used(stats) == {"running"}
    assert stats["totalDocsExamined"] <= RUNNING
    stats = explain(store, first_request(store.adopt(uuid4())))
    assert indexes_used(stats) == {"running"}
    assert stats["totalDocsExamined"] == 0


def expiry_looks_at_what_is_too_late_alone(store: MongoStore) -> None:
    now = datetime.now(UTC)
    answers: list[list[dict[str, Any]]] = [[{"now": now}]]
    for index in ("expiring", "expiring_blocked"):
        request = first_request(store.expire(20), answers)
        stats = explain(store, request)
        assert indexes_used(stats) == {index}
        assert stats["totalDocsExamined"] == 0
        assert "SORT" not in stage_names(stats)
        answers.append([])


def lists_use_their_indexes(store: MongoStore) -> None:
    cases: list[tuple[Filter, set[str]]] = [
        (Filter(), {"_id_"}),
        (Filter(state="failed"), {"failed"}),
        (Filter(state="completed"), {"finished"}),
        (Filter(state="cancelled"), {"cancelled"}),
        (Filter(type="old"), {"by_type"}),
        (Filter(type="none"), {"by_type"}),
        (Filter(tenant="acme"), {"by_tenant"}),
        (Filter(chain=uuid4()), {"_id_", "by_chain"}),
    ]
    for filter, expected in cases:
        for before in (None, Bookmark(uuid7(), datetime.now(UTC))) if filter.by_end else (None,):
            stats = explain(store, first_request(store.list(filter, 20, before)))
            assert indexes_used(stats) == expected, (filter, before)
            assert stats["totalDocsExamined"] <= 20, (filter, before)
            assert "SORT" not in stage_names(stats) or filter.chain, (filter, before)  # a chain is short


def live_queues_are_stepped_through(store: MongoStore) -> None:
    request = first_request(store.live_queues())
    command = {"aggregate": request.collection, "pipeline": request.arguments[0], "cursor": {}, **request.options}
    answer = raw(store, "jobs").database.command("explain", command, verbosity="executionStats")
    assert "DISTINCT_SCAN" in str(answer)
    assert store.connections.run(store.live_queues) == ["q"]


def the_next_due_is_stepped_to(store: MongoStore) -> None:
    request = first_request(store.next_due(["q"]))
    command = {"aggregate": request.collection, "pipeline": request.arguments[0], "cursor": {}, **request.options}
    answer = raw(store, "jobs").database.command("explain", command, verbosity="executionStats")
    assert "DISTINCT_SCAN" in str(answer)
    assert answer["stages"][0]["$cursor"]["executionStats"]["totalKeysExamined"] < 10
    assert -60 < (store.connections.run(lambda: store.next_due(["none", "q"])) or 0) < -0.9


def lines_are_stepped_to(store: MongoStore) -> None:
    request = first_request(OrderKeys(store.context).promote([("", f"key {key}") for key in range(LANES)]))
    command = {"aggregate": request.collection, "pipeline": request.arguments[0], "cursor": {}, **request.options}
    answer = raw(store, "jobs").database.command("explain", command, verbosity="executionStats")
    assert "DISTINCT_SCAN" in str(answer)
    assert answer["stages"][0]["$cursor"]["executionStats"]["totalKeysExamined"] <= 2 * LANES


def admission_looks_at_what_has_arrived(store: MongoStore) -> None:
    for looks in (0, 1):
        stats = explain(store, first_request(store.admit(100), [[]] * looks))
        assert indexes_used(stats) == {"arriving"}
        assert stats["totalKeysExamined"] <= 1
    store.clock.move(timedelta(days=2))
    stats = explain(store, first_request(store.admit(100)))
    assert (stats["nReturned"], stats["totalKeysExamined"]) == (100, 100)
    assert "SORT" not in stage_names(stats)
    store.clock.move(timedelta(days=-2))


def writes_of_a_worker_look_at_its_jobs_alone(store: MongoStore) -> None:
    def explained(filter: Any, hint: Any = None) -> dict[str, Any]:
        update: dict[str, Any] = {"q": filter, "u": {"$set": {"x": 1}}, "multi": True}
        command = {"update": store.context.jobs, "updates": [update | ({"hint": hint} if hint else {})]}
        answer = raw(store, "jobs").database.command(
            "explain", command, verbosity="executionStats", codec_options=HANDLE["codec_options"]
        )
        stats: dict[str, Any] = answer["executionStats"]
        return stats

    token = raw(store, "jobs").find_one({"state": "running"})["token"]
    stats = explained(first_request(store.hold([token, uuid4()])).arguments[0])
    assert indexes_used(stats) == {"running"}
    assert stats["totalDocsExamined"] <= RUNNING
    request = first_request(store.settle([settled(uuid4(), token), settled(uuid4(), token)]))
    stats = explain(store, request)
    assert indexes_used(stats) == {"_id_"}
    assert stats["totalDocsExamined"] == 0
    write = writes_of({ending_of(settled(uuid4(), token), {}): [Member(to_key(uuid4()), None, None)]}, EPOCH)[0]
    stats = explained(write._filter, write._hint)
    assert indexes_used(stats) == {"_id_"}
    assert stats["totalDocsExamined"] == 0


def stage_names(stats: dict) -> set[str]:
    """SORT_MERGE merges streams that are in order already; SORT would have to read them to their ends."""
    names: set[str] = set()

    def walk(part: object) -> None:
        if isinstance(part, dict):
            if "stage" in part:
                names.add(part["stage"])
            for value in part.values():
                walk(value)
        elif isinstance(part, list):
            for value in part:
                walk(value)

    walk(stats["executionStages"])
    return names


def test_chains_and_dependents_use_their_indexes(full: MongoStore) -> None:
    cases: list[tuple[Filter, set[str], int]] = [
        (Filter(), {"_id_"}, 20),
        (Filter(state="completed"), {"finished"}, 20),
        (Filter(state="failed"), {"finished"}, FAILED),
        (Filter(type="old"), {"by_type"}, 20),
        (Filter(tenant="acme"), {"by_tenant"}, 20),
    ]
    for filter, expected, most in cases:
        stats = explain(full, first_request(full.chains(filter, 20)))
        assert indexes_used(stats) == expected, filter
        assert stats["totalDocsExamined"] <= most, filter
    request = first_request(full.dependents(uuid4(), 20))
    command = {"aggregate": request.collection, "pipeline": request.arguments[0], "cursor": {}, **request.options}
    database = raw(full, "edges").database.with_options(HANDLE["codec_options"])
    answer = database.command("explain", command, verbosity="executionStats", codec_options=HANDLE["codec_options"])
    assert "'indexName': 'dependents'" in str(answer)

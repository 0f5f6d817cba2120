"""Claims: nobody's job twice, in order, within bounds."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import msgspec
from bson.datetime_ms import DatetimeMS

from tests.mongodb.support import Disturbed, claim, enqueue, get, new, raw, settle, settled
from windlass.operation import drive
from windlass.policy import Policy
from windlass.stores.mongodb import MongoStore
from windlass.stores.store import ClaimRequest, Position


def test_eight_claimers_never_get_the_same_job(store: MongoStore) -> None:
    enqueue(store, *(new() for _ in range(2000)))

    def work(_: int) -> list[UUID]:
        mine: list[UUID] = []
        while jobs := claim(store, limit=50, token=(token := uuid4())):
            mine += [job.id for job in jobs]
            assert settle(store, *(settled(job.id, token) for job in jobs)) == []
        return mine

    with ThreadPoolExecutor(8) as pool:
        taken = Counter(id for ids in pool.map(work, range(8)) for id in ids)
    assert len(taken) == 2000
    assert set(taken.values()) == {1}
    assert store.connections.run(store.counts).completed == 2000


def test_a_claim_that_others_disturb_is_filled_from_what_follows(store: MongoStore) -> None:
    """What it found was taken before it could write: it looks further on instead of giving up."""
    enqueue(store, *(new() for _ in range(30)))
    connection = Disturbed(store, before=lambda: claim(store, limit=7))
    operation = store.claim(ClaimRequest(queue="q", limit=10, token=uuid4(), worker="slow"))
    assert len(drive(operation, connection)) == 10


def test_a_claim_that_is_disturbed_twice_continues_with_the_jobs_it_has_seen(store: MongoStore) -> None:
    """Its second look found all that is left, more than it has room for: what it did not choose is still there."""
    enqueue(store, *(new() for _ in range(30)))
    connection = Disturbed(store)

    def others_claim() -> None:
        claim(store, limit=8)
        connection.before = lambda: claim(store, limit=8)

    connection.before = others_claim
    operation = store.claim(ClaimRequest(queue="q", limit=8, token=uuid4(), worker="slow"))
    assert len(drive(operation, connection)) == 8


def test_an_answer_that_was_lost_is_read_again(store: MongoStore) -> None:
    """The update was made and the connection broke: the claim finds what bears its token."""
    enqueue(store, new())
    operation = store.claim(ClaimRequest(queue="q", limit=10, token=uuid4(), worker="w"))
    assert len(drive(operation, Disturbed(store, lost=True))) == 1


def test_a_job_that_is_rewritten_before_the_claim_is_taken_as_rewritten(store: MongoStore) -> None:
    unique = {"unique_key": "k", "unique_until": "claimed"}
    job, other = new(input='{"n":1}', **unique), new()
    enqueue(store, job, other)
    again = new(input='{"n":2}', on_conflict="replace", **unique)
    connection = Disturbed(store, before=lambda: enqueue(store, again))
    request = ClaimRequest(queue="q", limit=10, token=uuid4(), worker="w")
    assert [one.id for one in drive(store.claim(request), connection)] == [other.id]
    (claimed,) = claim(store)
    assert (claimed.id, claimed.input) == (job.id, {"n": 2})


def test_what_came_back_before_it_is_taken_is_not_taken_for_what_it_was(store: MongoStore) -> None:
    """Its last attempt must not get into a buffer."""
    job, token = new(max_attempts=2), uuid4()
    enqueue(store, job)

    def others_try() -> None:
        claim(store, token=token)
        settle(store, settled(job.id, token, "pending"))

    request = ClaimRequest(queue="q", limit=10, token=uuid4(), worker="w", prefetch=True)
    assert drive(store.claim(request), Disturbed(store, before=others_try)) == []
    (claimed,) = claim(store)
    assert claimed.attempt == 2


def test_a_claim_tells_what_the_store_has(store: MongoStore) -> None:
    """Though it does not read it back."""
    nothing = {"max_attempts": None, "lease_seconds": None, "keep_seconds": None, "policy": None}
    for options in ({}, nothing, {"expires_seconds": 60.0}, {"unique_key": "k", "unique_until": "claimed"}):
        enqueue(store, new(**options))
    policies = {"t": Policy(max_attempts=3, lease_seconds=5.5, keep_seconds=7)}
    for job in claim(store, policies=policies):
        shown, stored = (msgspec.structs.asdict(one) for one in (job, get(store, job.id)))
        assert shown == stored


def test_a_claim_is_no_larger_than_an_answer_can_be(store: MongoStore) -> None:
    enqueue(store, *(new(input=f'"{"x" * 3_000_000}"') for _ in range(7)))
    counts = [len(claim(store, max_bytes=100_000_000)) for _ in range(2)]
    assert sum(counts) == 7
    assert counts[0] >= 4


def test_order_and_cursor(store: MongoStore) -> None:
    now = datetime.now(UTC)
    late = new(run_at=now + timedelta(seconds=1200))
    early = new(run_at=now + timedelta(seconds=600))
    urgent = new(rank=-1)
    future = new(delay_seconds=7200.0)
    enqueue(store, late, early, urgent, future)
    store.clock.move(timedelta(hours=1))
    (first,) = claim(store, limit=1)
    assert first.id == urgent.id
    (second,) = claim(store, limit=1, after=Position(-first.priority, first.run_at, first.id))
    assert second.id == early.id
    behind = Position(0, now + timedelta(days=1), UUID(int=0))
    assert claim(store, after=behind) == []
    assert [job.id for job in claim(store)] == [late.id]


def test_bounded_in_bytes_but_never_empty(store: MongoStore) -> None:
    enqueue(store, *(new(input='{"a":"' + "x" * 1000 + '"}') for _ in range(5)))
    assert len(claim(store, max_bytes=2500)) == 2
    assert len(claim(store, max_bytes=10)) == 1
    assert len(claim(store, max_bytes=10_000)) == 2


def test_a_buffer_gets_no_last_attempt(store: MongoStore) -> None:
    last, other, by_name = new(max_attempts=1), new(max_attempts=2), new(max_attempts=None, type="once")
    for_ever = new(max_attempts=0)
    enqueue(store, last, other, by_name, for_ever)
    policies = {"once": Policy(max_attempts=1)}
    assert {job.id for job in claim(store, prefetch=True, policies=policies)} == {other.id, for_ever.id}
    assert {job.id for job in claim(store, policies=policies)} == {last.id, by_name.id}


def test_the_claim_resolves_what_the_enqueuer_did_not_know(store: MongoStore) -> None:
    nothing = {"max_attempts": None, "lease_seconds": None, "keep_seconds": None, "policy": None}
    known, unknown, own = new(type="known", **nothing), new(type="$other", **nothing), new(type="known")
    enqueue(store, known, unknown, own)
    assert get(store, known.id).policy is None
    policies = {"known": Policy(max_attempts=3, lease_seconds=5.0, keep_seconds=7, timeout_seconds=1.5)}
    default = Policy(max_attempts=9, lease_seconds=50.0)
    jobs = {job.id: job for job in claim(store, worker="$worker", policies=policies, default_policy=default)}
    assert jobs[known.id].policy == policies["known"]
    assert jobs[unknown.id].policy == default
    assert jobs[own.id].max_attempts == 20
    for id, seconds in ((known.id, 5), (unknown.id, 50), (own.id, 60)):
        job = jobs[id]
        assert job.lease_expires_at is not None
        assert job.claimed_at is not None
        assert job.lease_expires_at - job.claimed_at == timedelta(seconds=seconds)
        assert job.worker == "$worker"


def test_never_due_before_its_time_though_dates_have_milliseconds(store: MongoStore) -> None:
    moment = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)
    job = new(run_at=moment + timedelta(microseconds=1), expires_at=moment + timedelta(microseconds=5999))
    enqueue(store, job)
    stored = get(store, job.id)
    assert stored.run_at == moment + timedelta(milliseconds=1)
    assert stored.expires_at == moment + timedelta(milliseconds=5)


def test_expired_and_paused_are_not_claimed(store: MongoStore) -> None:
    enqueue(store, new(expires_seconds=60.0))
    store.clock.move(timedelta(seconds=61))
    assert claim(store) == []
    enqueue(store, new())
    store.connections.run(lambda: store.pause("q"))
    assert store.connections.run(store.paused) == ["q"]
    assert claim(store) == []
    store.connections.run(lambda: store.resume("q"))
    assert store.connections.run(store.paused) == []
    assert len(claim(store)) == 1


def test_adopted_by_token(store: MongoStore) -> None:
    enqueue(store, *(new() for _ in range(3)))
    claimed = claim(store, token=(token := uuid4()))
    assert store.connections.run(lambda: store.adopt(token)) == claimed
    assert store.connections.run(lambda: store.adopt(uuid4())) == []


def test_dates_that_python_cannot_hold_break_nothing(store: MongoStore) -> None:
    job = new()
    enqueue(store, job)
    raw(store, "jobs").update_one({"_id": job.id}, {"$set": {"expires_at": DatetimeMS(300_000_000_000_000)}})
    assert get(store, job.id).expires_at is not None
    assert get(store, job.id).expires_at.year == 9999  # type: ignore[union-attr]

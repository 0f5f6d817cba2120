"""Jobs that others hang on, with many at it at once: nobody overtakes, nobody is left behind."""

from __future__ import annotations

import random
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from pymongo import MongoClient

from tests.mongodb.support import Disturbed, raw
from windlass.conformance.bench import Bench, Held, new_job
from windlass.conformance.chains import going_on
from windlass.job import NewJob
from windlass.lifecycle import BLOCKED
from windlass.operation import Begin, Commit, drive, persistent
from windlass.stores.mongodb import MongoStore

JOBS, KEYS, THREADS, RETRIED = 700, 20, 4, 0.15
PATIENCE = 60.0  # seconds until what has not run counts as stranded


@pytest.fixture
def bench(store: MongoStore) -> Bench:
    return Bench(store)


@pytest.fixture
def client(fresh_mongodb_url: str) -> Iterator[MongoClient[Any]]:
    client: MongoClient[Any] = MongoClient(fresh_mongodb_url)
    with client:
        yield client


def blocked_by(*ids: UUID, **fields: Any) -> NewJob:
    return new_job(blockers=ids, state=BLOCKED, **fields)


class Track:
    """What ran in which order; that no two of a key ran at once."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.running: set[str | None] = set()
        self.completed: dict[str | None, list[UUID]] = defaultdict(list)

    def begin(self, held: Held) -> None:
        with self.lock:
            assert held.job.order_key not in self.running
            self.running.add(held.job.order_key)

    def end(self, held: Held, *, completes: bool) -> None:
        with self.lock:
            self.running.discard(held.job.order_key)
            if completes:
                self.completed[held.job.order_key].append(held.id)

    @property
    def total(self) -> int:
        return sum(map(len, self.completed.values()))


def test_none_overtakes_and_none_is_stranded(store: MongoStore, bench: Bench, client: MongoClient[Any]) -> None:
    chance = random.Random(7)
    track = Track()
    given: dict[str | None, list[UUID]] = defaultdict(list)
    deadline = time.monotonic() + PATIENCE

    def enqueue() -> None:
        """One batch after the other, each known to be there before the next; some in transactions, some undone."""
        left = JOBS
        while left:
            batch = [new_job(order_key=f"key {chance.randrange(KEYS)}") for _ in range(min(left, chance.randint(1, 8)))]
            undone = chance.random() < 0.2
            if undone or chance.random() < 0.3:
                with client.start_session() as session:
                    session.start_transaction()
                    bench.store.connections.run_on(session, lambda: bench.store.enqueue(batch))  # noqa: B023
                    session.abort_transaction() if undone else session.commit_transaction()
            else:
                bench.enqueue(*batch)
            if not undone:
                left -= len(batch)
                for job in batch:
                    given[job.order_key].append(job.id)

    def work() -> None:
        while track.total < JOBS and time.monotonic() < deadline:
            bench.admit()
            for held in bench.claim(5):
                track.begin(held)
                completes = random.random() > RETRIED
                track.end(held, completes=completes)
                bench.accept(held.completes() if completes else held.gives_back())

    bench.at_once(THREADS + 1, lambda number: work() if number else enqueue())
    assert track.completed == given
    assert raw(store, "jobs").count_documents({"lane": {"$exists": True}}) == 0


def test_an_enqueue_after_a_job_meets_its_completion(bench: Bench) -> None:
    for _ in range(200):
        held, other = bench.hold(), bench.hold()
        dependent = blocked_by(held.id, other.id)

        def act(number: int) -> None:
            if number == 0:
                bench.enqueue(dependent)  # noqa: B023
                bench.admit()
            else:
                bench.accept((held, other)[number - 1].completes())  # noqa: B023

        bench.at_once(3, act)
        bench.admit()
        assert bench.look(dependent.id).state == "pending"
        assert [blocker.done for blocker in bench.blockers(bench.look(dependent.id))] == [True, True]


def test_an_enqueue_after_a_chain_meets_its_continuation(bench: Bench) -> None:
    for number in range(50):
        held = bench.hold()
        dependent = blocked_by(held.id)

        def act(who: int) -> None:
            if who:
                bench.accept(going_on(held, queue=f"next {number}"))  # noqa: B023
            else:
                bench.enqueue(dependent)  # noqa: B023
                bench.admit()

        bench.at_once(2, act)
        assert bench.look(dependent.id).state == "blocked"
        bench.accept(bench.claim_one(queue=f"next {number}").completes())
        bench.admit()
        assert bench.look(dependent.id).state == "pending"


def test_an_enqueue_after_a_job_meets_its_retry(bench: Bench) -> None:
    for number in range(50):
        blocker = bench.finish("failed", queue=f"back {number}")
        dependent = blocked_by(blocker.id)

        def act(who: int) -> None:
            if who:
                bench.retry(blocker)  # noqa: B023
            else:
                bench.enqueue(dependent)  # noqa: B023
                bench.admit()

        bench.at_once(2, act)
        bench.accept(bench.claim_one(queue=f"back {number}").completes())
        bench.admit()
        assert bench.look(dependent.id).state == "pending"


def test_one_may_wait_for_thousands(bench: Bench) -> None:
    blockers = bench.add_many(3000, queue="many")
    dependent = blocked_by(*(job.id for job in blockers))
    bench.enqueue(dependent)
    bench.admit()
    assert bench.look(dependent.id).blockers_left == 3000

    def work(_: int) -> None:
        while held := bench.claim(100, queue="many"):
            bench.accept(*(one.completes() for one in held))

    bench.at_once(3, work)
    assert bench.look(dependent.id).state == "pending"


def test_an_open_transaction_holds_up_no_other(bench: Bench, client: MongoClient[Any]) -> None:
    """It adds to a line, and waits for a job that runs: both go on without it."""
    blocker = bench.hold()
    first, second = new_job(order_key="key"), new_job(order_key="key")
    bench.enqueue(first)
    bench.admit()
    dependent = blocked_by(blocker.id, queue="dependent")
    with client.start_session() as session:
        session.start_transaction()
        bench.store.connections.run_on(session, lambda: bench.store.enqueue([second, dependent]))
        began = time.monotonic()
        bench.accept(blocker.completes('"out"'), bench.claim_one().completes())
        bench.admit()
        assert time.monotonic() - began < 30.0  # it stays open for as long as it likes
        assert bench.claim() == []
        session.commit_transaction()
    bench.admit()
    assert bench.claim_one().id == second.id
    assert bench.claim_one(queue="dependent").id == dependent.id
    assert [blocker.output for blocker in bench.blockers(bench.look(dependent.id))] == ['"out"']


def test_only_what_others_hang_on_is_settled_in_a_transaction(store: MongoStore, bench: Bench) -> None:
    plain, watched = bench.hold(), bench.hold()

    def settling(held: Held, **disturbance: Any) -> bool:
        connection = Disturbed(store, **disturbance)
        assert drive(persistent(lambda: store.settle([held.completes()])), connection) == []
        return any(isinstance(step, Begin) for step in connection.steps)

    def watch() -> None:
        bench.run(lambda: store.watch([watched.id]))

    assert not settling(plain)
    assert settling(watched, before=watch)  # found plain, and no longer so when it was written
    assert [bench.look(held).state for held in (plain, watched)] == ["completed", "completed"]
    assert bench.counts().completed == 2


def test_one_that_leaves_no_trace_is_not_refused_beside_one_that_collides(store: MongoStore, bench: Bench) -> None:
    traceless, watched = bench.hold(keep_seconds=0), bench.hold()
    bench.run(lambda: store.watch([watched.id]))
    connection = Disturbed(store, before=lambda: bench.run(lambda: store.watch([watched.id])))
    settlements = [traceless.completes(), watched.completes()]
    assert drive(persistent(lambda: store.settle(settlements)), connection) == []
    assert sum(isinstance(step, Begin) for step in connection.steps) == 2
    assert bench.get(traceless.id) == []
    assert bench.look(watched).state == "completed"


@pytest.mark.parametrize("by", ["chain", "order key"])
def test_an_enqueue_after_a_job_that_is_ending_is_not_missed(store: MongoStore, bench: Bench, by: str) -> None:
    """He that ends it has looked already, and has not written yet."""
    bench.enqueue(first := new_job(order_key="key"))
    bench.admit()
    held = bench.claim_one()
    bench.run(lambda: store.watch([first.id]))
    late = blocked_by(held.id) if by == "chain" else new_job(order_key="key")

    def come() -> None:
        bench.enqueue(late)
        bench.admit()

    connection = Disturbed(store, before=come)
    assert drive(persistent(lambda: store.settle([held.completes()])), connection) == []
    assert bench.claim_one().id == late.id


def test_a_job_in_line_that_is_put_off_leaves_the_line(bench: Bench) -> None:
    def replacing(**fields: Any) -> NewJob:
        return new_job(order_key="key", unique_key="u", unique_until="claimed", on_conflict="replace", **fields)

    first, put_off, last = new_job(order_key="key"), replacing(), new_job(order_key="key")
    for job in (first, put_off, last):
        bench.enqueue(job)
        bench.admit()
    (answer,) = bench.enqueue(replacing(delay_seconds=60))
    assert (answer.job.id, answer.created) == (put_off.id, False)
    for job in (first, last):
        bench.admit()
        held = bench.claim_one()
        assert held.id == job.id
        bench.accept(held.completes())
    bench.admit()
    assert bench.claim() == []
    bench.pass_time(seconds=61)
    bench.admit()
    assert bench.claim_one().id == put_off.id


@pytest.mark.parametrize("end", ["cancelled", "deleted"])
def test_what_ends_before_it_is_let_in(store: MongoStore, bench: Bench, end: str) -> None:
    jobs = [blocked_by(bench.add(queue="blocker").id), new_job(order_key="key"), new_job(order_key="key")]
    jobs.append(blocked_by(jobs[1].id, order_key="key"))
    bench.enqueue(*jobs)
    act = bench.cancel if end == "cancelled" else bench.delete
    assert all(change.done for change in act(*(job.id for job in jobs)))
    bench.admit()
    assert raw(store, "jobs").count_documents({"arriving": {"$exists": True}}) == 0
    if end == "cancelled":
        assert {bench.look(job.id).blockers_left for job in jobs} == {None}
        bench.retry(*(job.id for job in jobs))
        bench.admit()
        assert [bench.look(job.id).state for job in jobs] == ["blocked", "pending", "pending", "blocked"]
        assert bench.claim_one().id == jobs[1].id


def test_a_line_without_a_head_is_found_by_who_comes_next(store: MongoStore, bench: Bench) -> None:
    """A process that ended while it let a job in: the job still counts as arriving."""
    bench.enqueue(job := new_job(order_key="key"))
    operation = store.admit(10)
    step: Any = next(operation)
    connection = Disturbed(store).connection
    while not isinstance(step, Commit):
        step = operation.send(connection.execute(step))
    connection.execute(step)  # it has its place, and is not the head yet
    operation.close()
    assert raw(store, "jobs").find_one()["lane"] == 1
    bench.admit()
    assert bench.claim_one().id == job.id


def test_a_deleted_job_leaves_no_edges(store: MongoStore, bench: Bench) -> None:
    jobs = {keep: blocked_by(bench.add().id, queue=f"keep {keep}", keep_seconds=keep) for keep in (0, 10, 3600)}
    bench.enqueue(*jobs.values())
    bench.admit()
    bench.accept(*(held.completes() for held in bench.claim(queue="default")))
    for keep in jobs:
        bench.accept(bench.claim_one(queue=f"keep {keep}").completes())
    bench.pass_time(seconds=20)
    bench.prune()
    assert [edge["job"] for edge in raw(store, "edges").find()] == [jobs[3600].id]

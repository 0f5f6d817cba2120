"""Order keys: the jobs of one key run one at a time, first in, first out. Other jobs do not wait for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from ..job import Job, NewJob
from ..unique import Unique
from .bench import Bench, Held, new_job
from .chains import going_on


def add_ordered(bench: Bench, key: str = "key", **fields: Any) -> Job:
    (answer,) = bench.enqueue(new_job(order_key=key, **fields))
    bench.admit()
    return answer.job


def ids(held: list[Held]) -> list[UUID]:
    return [one.id for one in held]


ID_OF_ITS_OWN: dict[str, Any] = {"id": UUID(int=1)}

# Each function makes the job at one position of a batch. A store that sorts the batch by unique key or id would reverse
# it.
OUT_OF_ORDER: dict[str, Callable[[int], NewJob]] = {
    "unique keys": lambda number: new_job(order_key="key", unique=Unique(f"{9 - number}")),
    "kept unique keys": lambda number: new_job(order_key="key", unique=Unique(f"{9 - number}", until="forever")),
    "own ids": lambda number: new_job(order_key="key", id=UUID(int=9 - number)),
    "ids of any order": lambda number: new_job(order_key="key", id=UUID(int=9 - number), id_given=False),
    "some unique keys": lambda number: new_job(order_key="key", unique=Unique("unique") if number == 1 else None),
    "one own id": lambda number: new_job(order_key="key", **ID_OF_ITS_OWN if number == 3 else {}),
}


class OrderKeys:
    def test_the_next_starts_when_the_one_before_has_ended(self, bench: Bench) -> None:
        jobs = [add_ordered(bench) for _ in range(3)]
        for job in jobs:
            (held,) = bench.claim()
            assert held.id == job.id
            assert bench.claim() == []
            bench.accept(held.completes())
            bench.admit()

    def test_keys_and_tenants_go_side_by_side(self, bench: Bench) -> None:
        first = [add_ordered(bench, "a"), add_ordered(bench, "b"), add_ordered(bench, "a", tenant="acme")]
        for _ in range(2):
            add_ordered(bench, "a")
        plain = bench.add()
        assert {one.id for one in bench.claim()} == {job.id for job in (*first, plain)}

    def test_in_one_batch_the_order_is_that_of_the_batch(self, bench: Bench) -> None:
        jobs = [new_job(order_key="key") for _ in range(5)]
        bench.enqueue(*jobs)
        bench.admit()
        for job in jobs:
            held = bench.claim_one()
            assert held.id == job.id
            bench.accept(held.completes())

    @pytest.mark.parametrize("make", OUT_OF_ORDER.values(), ids=OUT_OF_ORDER)
    def test_unique_keys_and_ids_do_not_change_the_order_of_a_batch(
        self, bench: Bench, make: Callable[[int], NewJob]
    ) -> None:
        jobs = [make(number) for number in range(5)]
        bench.enqueue(*jobs)
        bench.admit()
        for job in jobs:
            held = bench.claim_one()
            assert held.id == job.id
            bench.accept(held.completes())

    def test_one_that_is_put_off_leaves_the_line_until_then(self, bench: Bench) -> None:
        fields: dict[str, Any] = {"unique_key": "u", "unique_until": "claimed", "on_conflict": "replace"}
        first, put_off = add_ordered(bench), add_ordered(bench, **fields)
        last = add_ordered(bench)
        add_ordered(bench, delay_seconds=60, **fields)
        for job in (first, last):
            held = bench.claim_one()
            assert held.id == job.id
            bench.accept(held.completes())
        bench.admit()
        assert bench.claim() == []
        bench.pass_time(seconds=61)
        bench.admit()
        assert bench.claim_one().id == put_off.id

    def test_one_that_is_made_due_at_once_does_not_overtake(self, bench: Bench) -> None:
        """A debounced job reached its longest wait a while ago. It is due now, not at that earlier time."""
        fields: dict[str, Any] = {"unique_key": "u", "unique_until": "claimed", "on_conflict": "replace"}
        debounced = add_ordered(bench, delay_seconds=600, **fields)
        bench.pass_time(seconds=300)
        waiting = bench.add(order_key="key")
        bench.pass_time(seconds=1)
        bench.enqueue(new_job(order_key="key", window_seconds=150, **fields))
        bench.admit()
        for job in (waiting, debounced):
            held = bench.claim_one()
            assert held.id == job.id
            bench.accept(held.completes())

    def test_one_that_retries_holds_its_key_and_no_other(self, bench: Bench) -> None:
        first = add_ordered(bench)
        add_ordered(bench)
        other = add_ordered(bench, "other")
        held = {one.id: one for one in bench.claim()}
        assert set(held) == {first.id, other.id}
        bench.send_back(held[first.id], delay_seconds=60)
        bench.admit()
        assert bench.claim() == []
        bench.accept(held[other.id].completes())
        bench.pass_time(seconds=61)
        assert ids(bench.claim()) == [first.id]

    def test_priority_does_not_overtake_within_a_key(self, bench: Bench) -> None:
        first = add_ordered(bench)
        add_ordered(bench, priority=50)
        assert ids(bench.claim()) == [first.id]

    def test_a_scheduled_job_does_not_hold_its_key_before_its_time(self, bench: Bench) -> None:
        later = add_ordered(bench, delay_seconds=60)
        now = add_ordered(bench)
        held = bench.claim_one()
        assert held.id == now.id
        bench.accept(held.completes())
        bench.pass_time(seconds=61)
        assert bench.claim() == []
        bench.admit()
        assert ids(bench.claim()) == [later.id]

    def test_a_past_time_is_now(self, bench: Bench) -> None:
        first = add_ordered(bench)
        bench.pass_time(seconds=1)
        add_ordered(bench, run_at=first.run_at)
        assert ids(bench.claim()) == [first.id]

    def test_cancelling_and_deleting_let_the_next_one_in(self, bench: Bench) -> None:
        jobs = [add_ordered(bench) for _ in range(5)]
        assert bench.cancel(jobs[0])[0].done
        assert bench.delete(jobs[1])[0].done
        assert bench.cancel(jobs[3])[0].done
        held = bench.claim_one()
        assert held.id == jobs[2].id
        bench.accept(held.ends("failed"))
        assert ids(bench.claim()) == [jobs[4].id]

    def test_the_next_of_one_key_can_be_asked_for(self, bench: Bench) -> None:
        add_ordered(bench, "a")
        wanted = add_ordered(bench, "b")
        add_ordered(bench, "b")
        assert ids(bench.claim(order_key="b")) == [wanted.id]
        assert bench.claim(order_key="b") == []
        assert bench.claim(order_key="unused") == []

    def test_a_rescued_one_keeps_its_place(self, bench: Bench) -> None:
        first = add_ordered(bench)
        add_ordered(bench)
        bench.claim_one()
        bench.pass_time(minutes=5)
        assert len(bench.rescue()) == 1
        bench.pass_time(minutes=5)
        assert ids(bench.claim()) == [first.id]

    def test_brought_back_it_comes_last(self, bench: Bench) -> None:
        first = add_ordered(bench)
        second = add_ordered(bench)
        bench.accept(bench.claim_one().ends("failed"))
        bench.retry(first)
        bench.admit()
        held = bench.claim_one()
        assert held.id == second.id
        bench.accept(held.completes())
        assert ids(bench.claim()) == [first.id]

    def test_one_without_history_lets_the_next_one_in(self, bench: Bench) -> None:
        add_ordered(bench, keep_seconds=0)
        second = add_ordered(bench)
        bench.accept(bench.claim_one().completes())
        assert ids(bench.claim()) == [second.id]

    def test_one_that_was_blocked_takes_its_place_when_it_is_free(self, bench: Bench) -> None:
        held = bench.hold()
        (answer,) = bench.enqueue(new_job(order_key="key", blockers=(held.id,), state="blocked"))
        bench.admit()
        second = add_ordered(bench)
        bench.accept(held.completes())
        bench.admit()
        first = bench.claim_one()
        assert first.id == second.id
        bench.accept(first.completes())
        assert ids(bench.claim()) == [answer.job.id]

    def test_one_that_expires_lets_the_next_one_in(self, bench: Bench) -> None:
        add_ordered(bench, expires_seconds=60)
        second = add_ordered(bench)
        bench.pass_time(seconds=61)
        bench.run(lambda: bench.store.expire(10))
        assert ids(bench.claim()) == [second.id]

    def test_a_chain_of_ordered_jobs(self, bench: Bench) -> None:
        add_ordered(bench)
        other = add_ordered(bench)
        held = bench.claim_one()
        bench.accept(going_on(held, order_key="key"))
        bench.admit()
        turn = bench.claim_one()
        assert turn.id == other.id
        bench.accept(turn.completes())
        assert bench.claim_one().job.chain_id == held.id

    def test_many_at_once_never_two_of_a_key(self, bench: Bench) -> None:
        for _ in range(10):
            bench.enqueue(*(new_job(order_key=f"key {number}") for number in range(8)))
        bench.admit()
        ran: list[UUID] = []

        def work(_: int) -> None:
            while True:
                bench.admit()
                held = bench.claim(3)
                if not held and bench.counts()["pending"] == 0:
                    return
                keys = [one.job.order_key for one in held]
                assert len(set(keys)) == len(keys)
                ran.extend(one.id for one in held)
                bench.accept(*(one.completes() for one in held))

        bench.at_once(4, work)
        assert len(ran) == len(set(ran)) == 80
        by_key: dict[str | None, list[int]] = {}
        order = {id: number for number, id in enumerate(ran)}
        for job in sorted(bench.find(), key=lambda job: job.id):
            by_key.setdefault(job.order_key, []).append(order[job.id])
        assert all(places == sorted(places) for places in by_key.values())

    def test_the_head_of_one_tenants_key_can_be_asked_for(self, bench: Bench) -> None:
        add_ordered(bench, "key", tenant="one")
        job = add_ordered(bench, "key", tenant="two")
        assert ids(bench.claim(order_key="key", tenant="two")) == [job.id]
        assert bench.claim(order_key="key", tenant="two") == []
        assert len(bench.claim(order_key="key")) == 1

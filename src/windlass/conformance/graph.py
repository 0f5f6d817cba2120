"""The graph: the dependents of a chain, the list of chains, and deletion with cascade."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import pytest

from ..job import Job
from ..lifecycle import STATES, State
from ..stores.store import ChainRecord
from .bench import Bench, Held
from .blockers import add_after
from .chains import going_on


def ids(records: Sequence[ChainRecord]) -> list[tuple[UUID, UUID]]:
    return [(one.root.id, one.last.id) for one in records]


def in_state(bench: Bench, state: State, **fields: str) -> Job:
    """Make a chain of one job in this state."""
    if state == "blocked":
        return add_after(bench, bench.hold(type="blocker"), **fields)
    if state == "pending":
        return bench.add(**fields)
    return bench.hold(**fields).job if state == "running" else bench.finish(state, **fields)


class Dependents:
    def test_who_waits_and_who_has_waited(self, bench: Bench) -> None:
        held = bench.hold()
        jobs = [add_after(bench, held) for _ in range(3)]
        other = add_after(bench, bench.hold())
        assert bench.dependents(held.id) == [job.id for job in jobs]
        bench.accept(held.completes())
        bench.cancel(jobs[1])
        assert bench.dependents(held.id) == [job.id for job in jobs]
        assert bench.dependents(other.id) == []

    def test_by_pages(self, bench: Bench) -> None:
        held = bench.hold()
        jobs = [add_after(bench, held, held).id for _ in range(5)]
        assert bench.dependents(held.id, 2) == jobs[:2]
        assert bench.dependents(held.id, 2, jobs[1]) == jobs[2:4]
        assert bench.dependents(held.id, 2, jobs[3]) == jobs[4:]

    def test_those_that_are_gone_are_not_known(self, bench: Bench) -> None:
        held = bench.hold()
        job = add_after(bench, held)
        bench.delete(job)
        assert bench.dependents(held.id) == []


class ChainLists:
    @pytest.mark.parametrize("state", STATES)
    def test_a_job_is_a_chain_of_one(self, bench: Bench, state: State) -> None:
        others = [in_state(bench, other, type="other") for other in STATES if other != state]
        job = in_state(bench, state, type="mine")
        assert ids(bench.chains(type="mine")) == [(job.id, job.id)]
        assert ids(bench.chains(type="mine", state=state)) == [(job.id, job.id)]
        (record,) = bench.chains(type="mine")
        assert record.last.state == state
        for other in others:
            assert ids(bench.chains(type="other", state=bench.look(other).state)) == [(other.id, other.id)]
            assert bench.chains(type="mine", state=bench.look(other).state) == []

    @pytest.mark.parametrize("state", STATES)
    def test_a_chain_is_in_the_state_of_its_newest_job(self, bench: Bench, state: State) -> None:
        first = bench.hold(queue="first", type="root")
        bench.accept(going_on(first, queue="second"))
        second = bench.claim_one(queue="second")
        blockers = {"blockers": (bench.hold(type="blocker").id,), "state": "blocked"} if state == "blocked" else {}
        bench.accept(going_on(second, queue="third", **blockers))
        bench.admit()
        if state not in ("blocked", "pending"):
            third = bench.claim_one(queue="third")
            if state != "running":
                bench.accept(third.ends(state))
        for found in (bench.chains(type="root"), bench.chains(state=state, type="root"), bench.chains(queue="first")):
            (record,) = found
            assert (record.root.id, record.root.type) == (first.id, "root")
            assert (record.last.state, record.last.chain_index) == (state, 2)
        for other in STATES:
            assert len(bench.chains(state=other, type="root")) == (other == state)
        assert bench.chains(queue="second") == []

    def test_newest_first_and_by_pages(self, bench: Bench) -> None:
        roots: list[UUID] = []
        for number in range(9):
            held = bench.hold(queue="roots")
            roots.insert(0, held.id)
            if number % 3:
                bench.accept(going_on(held, queue="next"))
                following = bench.claim_one(queue="next")
                if number % 3 == 1:
                    bench.accept(following.ends("failed"))
            elif number:
                bench.accept(held.completes())
        assert [one.root.id for one in bench.chains()] == roots
        paged: list[UUID] = []
        while page := bench.chains(2, paged[-1] if paged else None):
            paged += [one.root.id for one in page]
        assert paged == roots
        for state, numbers in {"failed": (1, 4, 7), "running": (0, 2, 5, 8), "completed": (3, 6)}.items():
            expected = [roots[8 - number] for number in reversed(numbers)]
            assert [one.root.id for one in bench.chains(state=state)] == expected
            assert [one.root.id for one in bench.chains(1, expected[0], state=state)] == expected[1:2]

    def test_of_a_tenant(self, bench: Bench) -> None:
        bench.add(tenant="other")
        held = bench.hold(tenant="acme", queue="q")
        bench.accept(going_on(held, tenant="acme", queue="next"))
        none = bench.add()
        assert [one.root.id for one in bench.chains(tenant="acme")] == [held.id]
        assert [one.root.id for one in bench.chains(tenant="acme", state="pending")] == [held.id]
        assert [one.root.id for one in bench.chains(tenant="")] == [none.id]
        assert bench.chains(tenant="acme", state="failed") == []

    def test_a_failed_chain_that_is_brought_back_is_live_again(self, bench: Bench) -> None:
        held = bench.hold(queue="q")
        bench.accept(going_on(held, queue="next"))
        last = bench.claim_one(queue="next")
        bench.accept(last.ends("failed"))
        bench.retry(last)
        assert bench.chains(state="failed") == []
        assert ids(bench.chains(state="pending")) == [(held.id, last.id)]


class Cascades:
    def test_what_it_waited_for_goes_with_it(self, bench: Bench) -> None:
        root = bench.finish()
        middle = [add_after(bench, root, queue="middle") for _ in range(2)]
        for held in bench.claim(queue="middle"):
            bench.accept(held.completes())
        last = add_after(bench, *middle)
        (change,) = bench.delete_cascade(last)
        assert change.done
        assert bench.find() == []
        assert bench.counts().total == 0

    def test_what_waits_goes_too(self, bench: Bench) -> None:
        root = bench.add()
        middle = [add_after(bench, root), add_after(bench, root)]
        last = add_after(bench, *middle)
        assert bench.delete_cascade(last)[0].done
        assert bench.find() == []

    def test_what_another_waits_for_stays_with_what_leads_to_it(self, bench: Bench) -> None:
        root, own = bench.finish(), bench.finish()
        shared = add_after(bench, root, queue="shared")
        job, other = add_after(bench, shared, own), add_after(bench, shared)
        assert bench.delete_cascade(job)[0].done
        assert {one.id for one in bench.find()} == {root.id, shared.id, other.id}
        assert bench.delete_cascade(other)[0].done
        assert bench.find() == []

    def test_what_runs_stays(self, bench: Bench) -> None:
        held, done = bench.hold(), bench.finish()
        job = add_after(bench, held, done)
        assert bench.delete_cascade(job)[0].done
        assert [one.id for one in bench.find()] == [held.id]
        bench.accept(held.completes())

    def test_nothing_goes_where_the_job_itself_may_not(self, bench: Bench) -> None:
        done = bench.finish()
        job = add_after(bench, done)
        waiting = add_after(bench, job)
        (change,) = bench.delete_cascade(job)
        assert (change.done, change.reason is not None) == (False, True)
        assert {one.id for one in bench.find()} == {done.id, job.id, waiting.id}

    def test_chains_go_whole(self, bench: Bench) -> None:
        first = bench.hold(queue="chain")
        bench.accept(going_on(first, queue="chain"))
        second = bench.claim_one(queue="chain")
        assert isinstance(second, Held)
        bench.accept(second.completes())
        job = add_after(bench, second)
        assert bench.delete_cascade(job)[0].done
        assert bench.find() == []

    def test_without_it_they_stay(self, bench: Bench) -> None:
        done = bench.finish()
        assert bench.delete(add_after(bench, done))[0].done
        assert [one.id for one in bench.find()] == [done.id]

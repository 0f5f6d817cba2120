"""The scope of a unique key: the jobs of one tenant and type, or all jobs of one tenant. A job's key does not conflict
with the next job of its own chain."""

from __future__ import annotations

from typing import Any

import pytest

from ..errors import Conflict
from ..job import NewJob
from ..operation import Operation
from ..stores.store import Enqueued
from ..unique import Scope, Unique
from .bench import Bench, Held, new_job
from .chains import going_on

KINDS = pytest.mark.parametrize("until", ["claimed", "finished", "forever", "10m"])
SCOPES = pytest.mark.parametrize("scope", ["type", "app"])


class UniqueScopes:
    @KINDS
    def test_a_key_is_one_of_its_type(self, bench: Bench, until: str) -> None:
        unique = Unique("key", until=until)
        first, second = bench.add(unique=unique, type="a"), bench.add(unique=unique, type="b")
        assert bench.enqueue_one(unique=unique, type="a").job == first
        assert bench.enqueue_one(unique=unique, type="b").job == second
        assert bench.counts().pending == 2

    @KINDS
    def test_a_key_of_the_app_is_one_of_all_types(self, bench: Bench, until: str) -> None:
        unique = Unique("key", until=until, scope="app")
        first = bench.add(unique=unique, type="a")
        answer = bench.enqueue_one(unique=unique, type="b")
        assert (answer.created, answer.job) == (False, first)
        assert bench.enqueue_one(unique=unique, type="b", tenant="acme").created

    @KINDS
    def test_the_same_text_in_both_scopes_is_two_keys(self, bench: Bench, until: str) -> None:
        bench.add(unique=Unique("key", until=until), type="a")
        bench.add(unique=Unique("key", until=until, scope="app"), type="a")
        assert not bench.enqueue_one(unique=Unique("key", until=until), type="a").created
        assert not bench.enqueue_one(unique=Unique("key", until=until, scope="app"), type="b").created

    @KINDS
    @SCOPES
    def test_in_one_batch(self, bench: Bench, until: str, scope: Scope) -> None:
        unique = Unique("key", until=until, scope=scope)
        answers = bench.enqueue(*(new_job(unique=unique, type=type) for type in ("a", "b", "a", "b")))
        made = [True, True, False, False] if scope == "type" else [True, False, False, False]
        assert [answer.created for answer in answers] == made
        again = bench.enqueue(*(new_job(unique=unique, type=type) for type in ("c", "b", "a")))
        assert [answer.created for answer in again] == [scope == "type", False, False]

    @KINDS
    def test_of_many_who_want_a_key_at_once_each_type_gets_it_once(self, bench: Bench, until: str) -> None:
        unique = Unique("key", until=until)
        answers = bench.at_once(8, lambda number: bench.enqueue_one(unique=unique, type="ab"[number % 2]))
        assert sum(answer.created for answer in answers) == 2
        assert len({answer.job.id for answer in answers}) == 2

    def test_what_is_replaced_is_of_the_same_type(self, bench: Bench) -> None:
        unique = Unique("key", until="claimed", on_conflict="replace")
        first = bench.add(unique=unique, type="a", input='{"n":1}')
        bench.enqueue_one(unique=unique, type="b", input='{"n":2}')
        assert bench.look(first).input == {"n": 1}
        bench.enqueue_one(unique=unique, type="a", input='{"n":3}')
        assert bench.look(first).input == {"n": 3}

    @KINDS
    @SCOPES
    def test_a_conflict_is_one_of_the_same_scope(self, bench: Bench, until: str, scope: Scope) -> None:
        unique = Unique("key", until=until, on_conflict="raise", scope=scope)
        bench.add(unique=unique, type="a")
        if scope == "type":
            bench.add(unique=unique, type="b")
        with pytest.raises(Conflict):
            bench.enqueue_one(unique=unique, type="b")

    @SCOPES
    def test_who_comes_back_takes_the_key_of_his_scope(self, bench: Bench, scope: Scope) -> None:
        unique = Unique("key", scope=scope)
        failed = bench.finish("failed", unique=unique, type="a")
        other = bench.add(unique=unique, type="b")
        (change,) = bench.retry(failed)
        assert change.done is (scope == "type")
        if scope == "app":
            bench.cancel(other)
            assert bench.retry(failed)[0].done
        assert bench.enqueue_one(unique=unique, type="a").job.id == failed.id
        failed = bench.finish("failed", unique=Unique("other", scope=scope), type="a")
        bench.add(unique=Unique("other", scope=scope), type="a")
        assert not bench.retry(failed)[0].done


class OwnKeys:
    """A job may enqueue a job with its own unique key in the transaction that completes it, or continue with one."""

    @SCOPES
    def test_a_chain_goes_on_under_the_same_key(self, bench: Bench, scope: Scope) -> None:
        unique = Unique("key", scope=scope)
        held = bench.hold(unique=unique, queue="q")
        for _ in range(3):
            bench.accept(going_on(held, unique=unique, queue="q"))
            assert not bench.enqueue_one(unique=unique).created
            held = bench.claim_one(queue="q")
        assert held.job.chain_index == 3

    @pytest.mark.parametrize("until", ["forever", "10m"])
    def test_but_not_under_one_that_outlives_it(self, bench: Bench, until: str) -> None:
        """The key stays held, so the next job would not be created, and the chain would end without an error."""
        unique = Unique("key", until=until)
        held = bench.hold(unique=unique, queue="q")
        with pytest.raises(Conflict, match="cannot be the next job"):
            bench.settle(going_on(held, unique=unique, queue="q"))
        assert bench.look(held).state == "running"

    @SCOPES
    @pytest.mark.parametrize("committed", [True, False])
    def test_what_it_enqueues_where_it_completes_gets_its_key(
        self, bench: Bench, scope: Scope, committed: bool
    ) -> None:
        unique = Unique("key", scope=scope)
        held, following = bench.hold(unique=unique), new_job(unique=unique)
        assert self._complete_with(bench, held, following, committed=committed).created
        assert bench.look(held).state == ("completed" if committed else "running")
        (answer,) = bench.enqueue(new_job(unique=unique))
        assert (answer.created, answer.job.id) == (False, following.id if committed else held.id)

    def test_whoever_has_lost_the_job_frees_no_key(self, bench: Bench) -> None:
        held = bench.hold(unique=Unique("key"))
        stale = Held(held.job, new_job().id)
        bench.run(lambda: bench.store.free_own_key(stale.id, stale.token, "task", "key"))
        bench.run(lambda: bench.store.free_own_key(held.id, held.token, "task", "other"))
        bench.run(lambda: bench.store.free_own_key(held.id, held.token, "", "key"))
        assert not bench.enqueue_one(unique=Unique("key")).created

    def _complete_with(self, bench: Bench, held: Held, following: NewJob, *, committed: bool) -> Enqueued:
        connections = bench.store.connections

        def enqueue() -> Operation[list[Enqueued]]:
            yield from bench.store.free_own_key(held.id, held.token, following.unique_scope, following.unique_key or "")
            return (yield from bench.store.enqueue([following]))

        answers: list[Any] = []
        try:
            with connections.transaction() as connection:
                answers += connections.run_on(connection, enqueue)
                connections.run_on(connection, lambda: bench.store.settle([held.completes()]))
                if not committed:
                    raise Undone
        except Undone:
            pass
        (answer,) = answers
        assert isinstance(answer, Enqueued)
        return answer


class Undone(Exception):
    pass

"""Unique keys that a live job holds, until its first claim or until it is finished."""

from __future__ import annotations

from datetime import timedelta

import pytest
from uuid_utils.compat import uuid7

from ..errors import Conflict
from ..lifecycle import State
from ..unique import Unique
from .bench import Bench, new_job

CLAIMED, FINISHED = Unique("key", until="claimed"), Unique("key", until="finished")
RAISE = Unique("key", on_conflict="raise")
BOTH = pytest.mark.parametrize("unique", [CLAIMED, FINISHED], ids=["claimed", "finished"])


class UniqueKeys:
    @BOTH
    def test_the_second_job_of_a_key_finds_the_first(self, bench: Bench, unique: Unique) -> None:
        first = bench.add(unique=unique, input='{"n":1}')
        second = bench.enqueue_one(unique=unique, input='{"n":2}', queue="other")
        assert not second.created
        assert (second.job.id, second.job.input, second.job.unique_key) == (first.id, {"n": 1}, "key")
        assert bench.find() == [first]

    @BOTH
    def test_another_key_or_another_tenant_is_free(self, bench: Bench, unique: Unique) -> None:
        bench.add(unique=unique)
        bench.add(unique=unique, tenant="acme")
        bench.add(unique=Unique("other", until=unique.until), tenant="acme")
        assert not bench.enqueue_one(unique=unique, tenant="acme").created
        assert bench.counts().pending == 3

    def test_jobs_without_a_key_are_never_in_each_others_way(self, bench: Bench) -> None:
        assert all(answer.created for answer in bench.enqueue(new_job(), new_job(), new_job(unique=FINISHED)))

    def test_both_kinds_share_their_keys(self, bench: Bench) -> None:
        bench.add(unique=CLAIMED)
        assert not bench.enqueue_one(unique=FINISHED).created

    @pytest.mark.parametrize("state", ["completed", "failed", "cancelled"])
    def test_a_key_until_finished_is_free_when_its_job_has_ended(self, bench: Bench, state: State) -> None:
        held = bench.hold(unique=FINISHED)
        assert bench.enqueue_one(unique=FINISHED).job == held.job
        bench.accept(held.ends(state))
        assert bench.enqueue_one(unique=FINISHED).created

    def test_a_key_until_finished_is_free_when_its_waiting_job_was_cancelled(self, bench: Bench) -> None:
        bench.cancel(bench.add(unique=FINISHED))
        assert bench.enqueue_one(unique=FINISHED).created

    def test_a_key_until_finished_is_held_through_retries_and_rescues(self, bench: Bench) -> None:
        held = bench.hold(unique=FINISHED, queue="q")
        bench.send_back(held)
        assert not bench.enqueue_one(unique=FINISHED).created
        bench.claim_one(queue="q")
        bench.pass_time(minutes=5)
        bench.rescue()
        assert not bench.enqueue_one(unique=FINISHED).created

    def test_the_first_claim_frees_a_key_until_claimed(self, bench: Bench) -> None:
        first = bench.hold(unique=CLAIMED)
        second = bench.enqueue_one(unique=CLAIMED)
        assert second.created
        assert second.job != first.job

    def test_a_retry_does_not_take_a_key_until_claimed_back(self, bench: Bench) -> None:
        first = bench.hold(unique=CLAIMED)
        bench.send_back(first)
        second = bench.add(unique=CLAIMED)
        assert bench.enqueue_one(unique=CLAIMED).job == second
        assert bench.counts().pending == 2

    def test_a_job_may_come_back_while_another_holds_its_key_until_claimed(self, bench: Bench) -> None:
        first = bench.hold(unique=CLAIMED)
        bench.add(unique=CLAIMED)
        bench.send_back(first)
        assert bench.counts().pending == 2

    def test_a_given_id_does_not_conflict_with_itself(self, bench: Bench) -> None:
        id = uuid7()
        bench.add(id=id, unique=RAISE)
        answer = bench.enqueue_one(id=id, unique=RAISE)
        assert (answer.created, answer.job.id) == (False, id)

    @pytest.mark.parametrize("ended", [True, False])
    @pytest.mark.parametrize("on_conflict", ["keep", "replace", "raise"])
    def test_an_id_sent_again_is_answered_by_its_own_job_though_another_has_its_key(
        self, bench: Bench, ended: bool, on_conflict: str
    ) -> None:
        unique = Unique("key", until="claimed", on_conflict=on_conflict)  # type: ignore[arg-type]
        first = bench.hold(id=uuid7(), unique=unique)
        if ended:
            bench.accept(first.completes())
        second = bench.add(unique=unique, input='{"n":2}')
        answer = bench.enqueue_one(id=first.id, unique=unique, input='{"n":1}')
        assert (answer.created, answer.job) == (False, first.job)
        assert bench.look(second).input == {"n": 2}

    @BOTH
    def test_of_many_who_want_a_key_at_once_one_gets_it(self, bench: Bench, unique: Unique) -> None:
        answers = bench.at_once(8, lambda _: bench.enqueue_one(unique=unique))
        assert sorted(answer.created for answer in answers) == [False] * 7 + [True]
        assert len({answer.job.id for answer in answers}) == 1
        assert bench.counts().total == 1

    def test_batches_that_want_the_same_keys_in_any_order_do_not_block_each_other(self, bench: Bench) -> None:
        keys = [Unique(f"key-{number}") for number in range(10)]

        def add(number: int) -> None:
            bench.enqueue(*(new_job(unique=unique) for unique in (keys if number % 2 else reversed(keys))))

        bench.at_once(8, add)
        assert bench.counts().total == 10


class UniqueBatches:
    @BOTH
    def test_of_jobs_with_one_key_in_one_batch_the_first_exists(self, bench: Bench, unique: Unique) -> None:
        answers = bench.enqueue(*(new_job(unique=unique, input=f'{{"n":{number}}}') for number in range(3)))
        assert [answer.created for answer in answers] == [True, False, False]
        assert {answer.job.id for answer in answers} == {answers[0].job.id}
        assert [job.input for job in bench.find()] == [{"n": 0}]

    def test_a_batch_finds_what_is_there_and_adds_the_rest(self, bench: Bench) -> None:
        there = bench.add(unique=FINISHED)
        answers = bench.enqueue(*(new_job() for _ in range(25)), new_job(unique=FINISHED), new_job(unique=Unique("x")))
        assert [answer.created for answer in answers] == [True] * 25 + [False, True]
        assert answers[25].job == there
        assert bench.counts().pending == 27

    @pytest.mark.parametrize("count", [1, 30])
    def test_a_conflict_that_raises_leaves_nothing_of_its_batch(self, bench: Bench, count: int) -> None:
        there = bench.add(unique=FINISHED, input='{"n":1}')
        replace = Unique("other", until="claimed", on_conflict="replace")
        replaced = bench.add(unique=replace, input='{"n":1}')
        others = [new_job(unique=Unique(f"key-{number}")) for number in range(count)]
        kept = new_job(unique=Unique("kept", until="forever"))
        with pytest.raises(Conflict, match="key"):
            bench.enqueue(*others, kept, new_job(unique=replace, input='{"n":2}'), new_job(unique=RAISE))
        assert bench.find() == [replaced, there]
        assert bench.look(replaced).input == {"n": 1}
        assert bench.enqueue_one(unique=Unique("kept", until="forever")).created
        assert bench.enqueue_one(unique=Unique("key-0")).created

    def test_a_conflict_within_the_batch_raises_too(self, bench: Bench) -> None:
        with pytest.raises(Conflict):
            bench.enqueue(new_job(unique=FINISHED), new_job(unique=RAISE))
        assert bench.find() == []

    def test_what_would_raise_does_not_where_it_is_the_first_of_its_key(self, bench: Bench) -> None:
        first, second = bench.enqueue(new_job(unique=RAISE), new_job(unique=FINISHED))
        assert (first.created, second.created) == (True, False)


class Replacing:
    REPLACE = Unique("key", until="claimed", on_conflict="replace")

    def test_replace_renews_input_time_priority_labels_and_expiry(self, bench: Bench) -> None:
        first = bench.add(unique=self.REPLACE, labels='{"a":"1"}', expires_seconds=100)
        bench.pass_time(seconds=10)
        answer = bench.enqueue_one(
            unique=self.REPLACE, input='{"n":2}', delay_seconds=60, priority=5, labels='{"b":"2"}', expires_seconds=900
        )
        assert (answer.created, answer.job.id) == (False, first.id)
        (job,) = bench.find()
        assert (job.id, job.input, job.priority, job.labels) == (first.id, {"n": 2}, 5, {"b": "2"})
        assert job.created_at == first.created_at
        assert timedelta(seconds=69) < job.run_at - first.run_at < timedelta(seconds=150)
        assert job.expires_at is not None
        assert timedelta(seconds=900) < job.expires_at - first.created_at < timedelta(seconds=1000)
        assert answer.job.input == {"n": 2}
        assert answer.job.run_at == job.run_at

    def test_replace_takes_away_what_the_new_job_does_not_have(self, bench: Bench) -> None:
        bench.add(unique=self.REPLACE, labels='{"a":"1"}', expires_seconds=100, priority=5, delay_seconds=60)
        bench.enqueue_one(unique=self.REPLACE)
        (held,) = bench.claim()
        assert (held.job.labels, held.job.expires_at, held.job.priority) == ({}, None, 0)

    def test_a_job_that_is_replaced_again_and_again_waits_for_the_last(self, bench: Bench) -> None:
        for number in range(4):
            bench.enqueue_one(unique=self.REPLACE, input=f'{{"n":{number}}}', delay_seconds=60)
            bench.pass_time(seconds=40)
            assert bench.claim() == []
        bench.pass_time(seconds=40)
        (held,) = bench.claim()
        assert held.job.input == {"n": 3}

    @pytest.mark.parametrize("max_wait", ["100s", None])
    def test_it_is_put_off_no_longer_than_it_may_be(self, bench: Bench, max_wait: str | None) -> None:
        unique = Unique("key", until="claimed", on_conflict="replace", max_wait=max_wait)
        first = bench.add(unique=unique, delay_seconds=60)
        for _ in range(3):
            bench.pass_time(seconds=40)
            held = bench.claim()
            if held:
                break
            answer = bench.enqueue_one(unique=unique, delay_seconds=60, input='{"n":1}')
            assert (answer.created, answer.job.id) == (False, first.id)
            latest = first.created_at + timedelta(seconds=100)
            assert answer.job.run_at == bench.look(first).run_at
            assert answer.job.run_at <= latest if max_wait else answer.job.run_at > bench.look(first).created_at
        assert [one.job.input for one in held] == ([{"n": 1}] if max_wait else [])

    def test_in_one_batch_and_beyond_its_time_too(self, bench: Bench) -> None:
        unique = Unique("key", until="claimed", on_conflict="replace", max_wait="100s")
        batch = [new_job(unique=unique, delay_seconds=90, input=f'{{"n":{number}}}') for number in (1, 2)]
        first = bench.enqueue(*batch)[0].job
        bench.pass_time(seconds=60)
        later = [new_job(unique=unique, delay_seconds=90), new_job(unique=unique, delay_seconds=80, input='{"n":4}')]
        answers = bench.enqueue(*later)
        assert {answer.job.run_at for answer in answers} == {first.created_at + timedelta(seconds=100)}
        bench.pass_time(seconds=90)
        bench.enqueue_one(unique=unique, delay_seconds=90, input='{"n":5}')
        assert [held.job.input for held in bench.claim()] == [{"n": 5}]

    def test_who_comes_after_it_was_claimed_waits_anew(self, bench: Bench) -> None:
        unique = Unique("key", until="claimed", on_conflict="replace", max_wait="100s")
        bench.add(unique=unique, delay_seconds=60)
        bench.pass_time(seconds=200)
        assert len(bench.claim()) == 1
        second = bench.enqueue_one(unique=unique, delay_seconds=60)
        assert second.created
        assert bench.claim() == []

    def test_what_was_claimed_is_not_replaced_but_followed_by_a_new_job(self, bench: Bench) -> None:
        first = bench.hold(unique=self.REPLACE, input='{"n":1}')
        second = bench.enqueue_one(unique=self.REPLACE, input='{"n":2}')
        assert second.created
        assert bench.look(first).input == {"n": 1}
        assert bench.look(second.job).input == {"n": 2}

    def test_what_runs_and_holds_its_key_until_it_is_finished_is_not_replaced(self, bench: Bench) -> None:
        first = bench.hold(unique=FINISHED, input='{"n":1}')
        answer = bench.enqueue_one(unique=self.REPLACE, input='{"n":2}')
        assert (answer.created, answer.job) == (False, first.job)
        assert bench.look(first).input == {"n": 1}

    @pytest.mark.parametrize("there", [True, False])
    def test_in_one_batch_the_last_replacement_stays(self, bench: Bench, there: bool) -> None:
        if there:
            bench.add(unique=self.REPLACE, input='{"n":0}')
        answers = bench.enqueue(*(new_job(unique=self.REPLACE, input=f'{{"n":{number}}}') for number in (1, 2, 3)))
        assert [answer.created for answer in answers] == [not there, False, False]
        assert [job.input for job in bench.find()] == [{"n": 3}]
        assert answers[-1].job.input == {"n": 3}

    def test_of_many_who_replace_at_once_one_creates(self, bench: Bench) -> None:
        answers = bench.at_once(8, lambda number: bench.enqueue_one(unique=self.REPLACE, input=f'{{"n":{number}}}'))
        assert sum(answer.created for answer in answers) == 1
        assert bench.counts().pending == 1

"""`counts`: the figures are cheap to read, and they are exact."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from ..lifecycle import FINISHED, STATES
from ..outcome import Cancel, Fail
from .bench import Bench


def check_counts(bench: Bench) -> None:
    """Check that the counts agree with the list of jobs."""
    shown = Counter((job.queue, job.type, job.state) for job in bench.find(100_000))
    counts = bench.counts()
    counted: Counter[tuple[str, str, str]] = Counter()
    for tally in counts.tallies:
        counted[tally.queue, tally.type, tally.state] += tally.count
    assert counted == shown
    assert dict(counts) == {state: sum(n for key, n in shown.items() if key[2] == state) for state in STATES}


class Counting:
    def test_an_empty_store_has_none(self, bench: Bench) -> None:
        assert bench.counts().total == 0
        assert bench.counts().tallies == []

    def test_by_state_queue_and_type(self, bench: Bench) -> None:
        bench.add_many(3, queue="a", type="x")
        bench.add_many(2, queue="a", type="y")
        bench.hold(queue="b", type="x")
        bench.finish("completed", queue="c", type="x")
        bench.finish("failed", queue="d", type="x")
        bench.finish("cancelled", queue="e", type="x")
        counts = bench.counts()
        assert dict(counts) == {
            **{"blocked": 0, "pending": 5, "running": 1, "completed": 1, "failed": 1, "cancelled": 1}
        }
        assert {(tally.queue, tally.type, tally.count) for tally in counts.tallies if tally.state == "pending"} == {
            *(("a", "x", 3), ("a", "y", 2))
        }
        check_counts(bench)

    def test_a_job_that_came_back_and_ended_again_counts_once(self, bench: Bench) -> None:
        job = bench.finish("failed")
        for _ in range(3):
            bench.retry(job)
            check_counts(bench)
            bench.accept(bench.claim_one(queue=job.queue).ends("failed"))
            check_counts(bench)
        assert bench.counts().total == 1

    def test_what_is_deleted_or_pruned_counts_no_more(self, bench: Bench) -> None:
        for state in FINISHED:
            bench.delete(bench.finish(state))
            bench.finish(state)
        bench.delete(bench.add())
        check_counts(bench)
        assert bench.counts().total == 3
        bench.pass_time(days=4)
        assert bench.prune() == 3
        check_counts(bench)
        assert bench.counts().total == 0

    def test_pruning_with_nothing_to_prune_changes_no_count(self, bench: Bench) -> None:
        for _ in range(5):
            bench.finish(queue="q")
            bench.prune()
            check_counts(bench)
        assert bench.counts().completed == 5

    @pytest.mark.parametrize("seed", range(3))
    def test_after_any_sequence_they_are_what_the_list_shows(self, bench: Bench, seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(12):
            self.step(bench, chance)
            check_counts(bench)
        bench.pass_time(days=60)
        bench.prune()
        check_counts(bench)

    def step(self, bench: Bench, chance: random.Random) -> None:
        queue, type = chance.choice("ab"), chance.choice("xy")
        bench.add_many(chance.randrange(4), queue=queue, type=type, keep_seconds=chance.choice([0, 3600, 86_400, -1]))
        for held in bench.claim(chance.randrange(1, 5), queue=chance.choice("ab")):
            outcome = chance.choice(["1", Fail("no"), Cancel(), ValueError("boom"), None])
            if isinstance(outcome, str):
                bench.accept(held.completes(outcome))
            elif outcome is not None:
                bench.accept(held.raises(outcome))
        jobs = bench.find()
        act = chance.choice([bench.retry, bench.delete, bench.cancel, bench.run_now])
        act(*chance.sample(jobs, len(jobs) // 3))
        bench.pass_time(hours=chance.randrange(30))
        if chance.random() < 0.5:
            bench.prune()
        bench.rescue()

"""`prune` and `vacuum`: jobs whose retention has ended are deleted, and no others.

A store may keep a job until the end of the day on which its retention ends.
"""

from __future__ import annotations

import pytest

from ..lifecycle import State
from .bench import Bench

HOUR, DAY = 3600, 86_400


class Pruning:
    @pytest.mark.parametrize("keep_seconds", [HOUR, DAY, 7 * DAY, 29 * DAY, 40 * DAY])
    def test_a_finished_job_goes_when_its_time_is_over_and_not_before(self, bench: Bench, keep_seconds: int) -> None:
        job = bench.finish(keep_seconds=keep_seconds)
        bench.pass_time(seconds=keep_seconds - 60)
        assert bench.prune() == 0
        assert bench.look(job).state == "completed"
        bench.pass_time(days=2)
        assert bench.prune() == 1
        assert bench.get(job.id) == []

    @pytest.mark.parametrize("state", ["completed", "failed", "cancelled"])
    def test_in_whichever_way_it_has_ended(self, bench: Bench, state: State) -> None:
        bench.finish(state, keep_seconds=DAY)
        bench.pass_time(days=3)
        assert bench.prune() == 1

    def test_a_failed_one_stays_longer_where_nothing_was_said(self, bench: Bench) -> None:
        failed = bench.finish("failed", keep_seconds=None)
        bench.finish("completed", keep_seconds=None)
        bench.finish("cancelled", keep_seconds=None)
        bench.pass_time(days=7, seconds=-60)
        assert bench.prune() == 0
        bench.pass_time(days=2)
        assert bench.prune() == 2
        assert bench.look(failed).state == "failed"
        bench.pass_time(days=21)
        assert bench.prune() == 0
        bench.pass_time(days=2)
        assert bench.prune() == 1
        assert bench.counts().total == 0
        again = bench.finish("failed", queue="again", keep_seconds=None)
        bench.retry(again)
        bench.accept(bench.claim_one(queue="again").completes())
        bench.pass_time(days=9)
        assert bench.prune() == 1

    def test_seven_days_that_were_given_hold_for_failed_ones_too(self, bench: Bench) -> None:
        job = bench.finish("failed", keep_seconds=7 * DAY)
        assert (policy := bench.look(job).policy) is not None
        assert policy.keep_seconds == 7 * DAY
        bench.retry(job)
        bench.accept(bench.claim_one(queue=job.queue).ends("failed"))
        bench.pass_time(days=9)
        assert bench.prune() == 1
        assert bench.counts().total == 0

    def test_its_time_counts_from_its_end(self, bench: Bench) -> None:
        held = bench.hold(keep_seconds=DAY)
        bench.pass_time(days=30)
        bench.accept(held.completes())
        assert bench.prune() == 0
        assert bench.look(held).state == "completed"

    def test_live_jobs_stay_however_old(self, bench: Bench) -> None:
        waiting, held = bench.add(keep_seconds=HOUR), bench.hold(keep_seconds=HOUR)
        bench.pass_time(days=400)
        assert bench.prune() == 0
        assert bench.look(waiting).state == "pending"
        bench.accept(held.completes())

    def test_a_job_that_was_brought_back_is_not_pruned_by_its_old_end(self, bench: Bench) -> None:
        job = bench.finish("failed", keep_seconds=DAY)
        bench.retry(job)
        bench.pass_time(days=3)
        assert bench.prune() == 0
        bench.accept(bench.claim_one(queue=job.queue).ends("failed"))
        assert bench.prune() == 0
        assert bench.look(job).state == "failed"

    def test_many_of_every_kind_go_and_the_others_stay(self, bench: Bench) -> None:
        keeps = [HOUR, DAY, 3 * DAY, 20 * DAY, 40 * DAY, -1]
        for keep_seconds in keeps:
            bench.add_many(30, keep_seconds=keep_seconds)
        bench.accept(*(held.completes() for held in bench.claim(1000)))
        bench.pass_time(days=6)
        assert bench.prune() == 90
        assert bench.counts().completed == len(bench.find()) == 90
        bench.pass_time(days=40)
        assert bench.prune() == 60
        assert {job.policy.keep_seconds for job in bench.find() if job.policy} == {-1}

    def test_old_and_new_jobs_of_one_day_are_told_apart(self, bench: Bench) -> None:
        for _ in range(4):
            bench.finish(keep_seconds=5 * DAY)
            bench.pass_time(days=32)
        assert bench.prune() == 4
        last = bench.finish(keep_seconds=5 * DAY)
        assert bench.prune() == 0
        assert bench.find() == [last]

    def test_to_vacuum_loses_nothing(self, bench: Bench) -> None:
        kept = [bench.add(), bench.hold().job, bench.finish()]
        bench.delete(bench.finish())
        bench.run(bench.store.vacuum)
        assert bench.find() == sorted(kept, key=lambda job: job.id, reverse=True)

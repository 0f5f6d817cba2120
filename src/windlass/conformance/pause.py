"""`pause` and `resume`, and the names of queues with live jobs."""

from __future__ import annotations

from .bench import Bench


class Pausing:
    def test_a_paused_queue_gives_nothing_until_it_is_resumed(self, bench: Bench) -> None:
        job = bench.add(queue="a")
        bench.run(lambda: bench.store.pause("a"))
        assert bench.claim(queue="a") == []
        assert bench.look(job).state == "pending"
        bench.run(lambda: bench.store.resume("a"))
        assert bench.claim_one(queue="a").job == job

    def test_other_queues_go_on(self, bench: Bench) -> None:
        bench.add(queue="b")
        bench.run(lambda: bench.store.pause("a"))
        assert len(bench.claim(queue="b")) == 1

    def test_what_runs_goes_on(self, bench: Bench) -> None:
        held = bench.hold(queue="a")
        bench.run(lambda: bench.store.pause("a"))
        (renewal,) = bench.renew(held.lease())
        assert renewal.expires_at is not None
        bench.accept(held.completes())

    def test_a_paused_queue_takes_new_jobs(self, bench: Bench) -> None:
        bench.run(lambda: bench.store.pause("a"))
        bench.add(queue="a")
        assert bench.counts().pending == 1

    def test_to_pause_or_resume_twice_is_to_do_it_once(self, bench: Bench) -> None:
        for name in ("a", "a", "b"):
            bench.run(lambda name=name: bench.store.pause(name))  # type: ignore[misc]
        assert sorted(bench.run(bench.store.paused)) == ["a", "b"]
        for _ in range(2):
            bench.run(lambda: bench.store.resume("a"))
        assert bench.run(bench.store.paused) == ["b"]

    def test_a_queue_that_was_never_paused_can_be_resumed(self, bench: Bench) -> None:
        bench.run(lambda: bench.store.resume("never"))
        assert bench.run(bench.store.paused) == []


class LiveQueues:
    def test_those_in_which_jobs_wait_paused_or_not(self, bench: Bench) -> None:
        assert bench.run(bench.store.live_queues) == []
        bench.add_many(3, queue="b")
        bench.add(queue="a", delay_seconds=60)
        bench.add(queue="c", type="unknown")
        bench.hold(queue="running")
        bench.finish(queue="finished")
        bench.run(lambda: bench.store.pause("b"))
        assert sorted(bench.run(bench.store.live_queues)) == ["a", "b", "c"]

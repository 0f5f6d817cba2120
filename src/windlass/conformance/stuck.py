"""`stuck`: the queues that have due jobs, but none of the types that the worker knows."""

from __future__ import annotations

from .bench import Bench


class Stuck:
    def stuck(self, bench: Bench, *types: str) -> list[str]:
        queues = ["one", "two", "three", "none"]
        return sorted(bench.run(lambda: bench.store.stuck(queues, list(types))))

    def test_a_queue_is_stuck_when_all_that_is_due_is_of_other_types(self, bench: Bench) -> None:
        bench.add(queue="one", type="a")
        bench.add(queue="two", type="a")
        bench.add(queue="two", type="b")
        bench.add(queue="other", type="a")
        assert self.stuck(bench, "b") == ["one"]
        assert self.stuck(bench, "a") == []
        assert self.stuck(bench) == ["one", "two"]

    def test_what_is_not_due_does_not_count(self, bench: Bench) -> None:
        bench.add(queue="one", type="a", delay_seconds=60)
        bench.add(queue="two", type="a")
        bench.add(queue="two", type="b", delay_seconds=60)
        assert self.stuck(bench, "b") == ["two"]
        bench.pass_time(seconds=61)
        assert self.stuck(bench, "b") == ["one"]

    def test_a_paused_queue_is_stuck_whatever_is_in_it(self, bench: Bench) -> None:
        bench.add(queue="one", type="a")
        bench.run(lambda: bench.store.pause("one"))
        assert self.stuck(bench, "a") == ["one"]
        bench.run(lambda: bench.store.resume("one"))
        assert self.stuck(bench, "a") == []

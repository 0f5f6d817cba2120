"""Workers that die. A failure prints the seed that replays its choices."""

from __future__ import annotations

import time
from collections import Counter

import pytest

from .conftest import Crew
from .program import HELD_LEASE_SECONDS, POISONS

KILLS, JOBS, WORKERS = 50, 5000, 4


def test_fifty_kills_and_five_thousand_jobs(crew: Crew) -> None:
    crew.start(WORKERS)
    began = replaced = time.monotonic()
    sent = 0
    while crew.deaths < KILLS:
        if sent < JOBS:  # while they are being killed, too
            crew.send([("fragile" if n % 10 == 0 else "work", {"seconds": 0.05}) for n in range(500)])
            sent += 500
            crew.until(lambda: crew.has_started_since(replaced))  # noqa: B023 - whom the kills are to hit
        time.sleep(crew.random.uniform(0.05, 0.4))
        count = crew.random.randint(1, min(WORKERS, KILLS - crew.deaths))
        crew.kill(count)
        crew.start(count)
        replaced = time.monotonic()
        crew.look()
    assert sent == JOBS
    crew.until(crew.drained)
    print(f"{crew.deaths} kills and {JOBS} jobs in {time.monotonic() - began:.1f} s; seed {crew.seed}")
    assert crew.violations() == [], f"seed {crew.seed}"
    events = Counter(event.kind for event in crew.history.read())
    assert events["started"] > JOBS + KILLS, "the kills have hit nobody at work: this shows nothing"
    assert crew.app.counts().completed > JOBS * 0.9


def test_twenty_handlers_that_are_poison(crew: Crew) -> None:
    """Each may kill its process as often as it has attempts; then it has failed, and nobody else has been harmed.

    One slot for each worker: what is claimed together with a poison, for slots that are free together, can die with it
    before it was started, and that may have been its last attempt.
    """
    poisons = crew.send([("poison", {"kind": POISONS[n % len(POISONS)]}) for n in range(20)])
    innocent = crew.send([("work", {"seconds": 0.02}) for _ in range(100)])
    crew.start(4, concurrency=1)

    def over() -> bool:
        crew.replace_dead(concurrency=1)
        return crew.drained()

    crew.until(over)
    assert crew.violations() == [], f"seed {crew.seed}"
    assert {job.refresh().state for job in innocent} == {"completed"}
    starts = Counter(event.id for event in crew.history.read() if event.kind == "started")
    for job in poisons:
        after = job.refresh()
        assert (after.state, after.attempt) == ("failed", 3)
        assert 1 <= starts[job.id] <= 3
        expected = {"recursion": "RecursionError", "memory": "MemoryError"}.get(after.input["kind"], "LeaseExpired")
        assert expected in str(after.error) or "LeaseExpired" in str(after.error)
    assert crew.deaths > 10


@pytest.mark.usefixtures("write_ahead")
def test_the_interpreter_is_held_for_three_leases_five_times_and_each_runs_once(crew: Crew) -> None:
    """Under a supervisor, which renews for its busy children; rescuers are about all the time."""
    jobs = crew.send([("holds_the_interpreter", {}) for _ in range(5)])
    supervisor = crew.supervise("--processes", "5", "--concurrency", "1")
    crew.until(lambda: any(event.kind == "started" for event in crew.history.read()))
    crew.start(1, queues=["none"])  # takes no job, and rescues
    crew.until(crew.drained, 100)
    supervisor.terminate()
    assert supervisor.wait(20) == 0
    assert crew.violations() == []
    starts = [event for event in crew.history.read() if event.kind == "started"]
    assert sorted(event.id for event in starts) == sorted(job.id for job in jobs)
    ends = {event.id: event.at for event in crew.history.read() if event.kind == "ended"}
    longest = max(ends[event.id] - event.at for event in starts)
    assert longest > 3 * HELD_LEASE_SECONDS, "it was not held for three leases: this shows nothing"

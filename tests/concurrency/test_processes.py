"""Eight processes on one store: no job is claimed twice, none is lost; and all of them may be the first."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from windlass import Windlass

from .workers import QUEUE, drain, enqueue_one, run_together

PROCESSES, JOBS_EACH = 8, 2_500


def test_each_job_is_claimed_once(store_url: str, tmp_path: Path) -> None:
    app = Windlass(store_url)
    enqueued = set()
    for _ in range(PROCESSES):
        calls = [app.call("count", {"number": number}, queue=QUEUE) for number in range(JOBS_EACH)]
        enqueued |= {job.id.hex for job in app.enqueue_many(calls)}
    assert len(enqueued) == PROCESSES * JOBS_EACH

    run_together(PROCESSES, drain, store_url, tmp_path)

    notes = [path.read_text().replace("-", "").split() for path in tmp_path.glob("*.txt")]
    claimed = Counter(id for note in notes for id in note)
    assert [id for id, count in claimed.items() if count > 1] == []
    assert claimed.keys() == enqueued
    assert sum(bool(note) for note in notes) > 1
    assert {state: count for state, count in app.counts().items() if count} == {"completed": len(enqueued)}
    app.close()


def test_all_may_be_the_first(empty_store_url: str) -> None:
    run_together(PROCESSES, enqueue_one, empty_store_url)
    app = Windlass(empty_store_url)
    assert sorted(job.input["number"] for job in app.list(queue=QUEUE)) == list(range(PROCESSES))
    assert app.migrate() == []
    app.close()

"""One job passes through few files: a newcomer can read all of them."""

from __future__ import annotations

from tests.walk.trace import walk_alone

MOST_FILES = 23  # the aim is 22
MOST_BESIDE = 15  # it is 11, and timing adds some


def test_a_job_passes_through_few_files(fresh_postgres_url: str) -> None:
    walk = walk_alone(fresh_postgres_url)
    print(f"{len(walk.passed)} files:", *walk.passed, f"and {len(walk.beside)} beside it:", *walk.beside, sep="\n")
    assert len(walk.passed) <= MOST_FILES
    assert len(walk.beside) <= MOST_BESIDE
    assert {"enqueue.py", "worker/executor.py", "results.py"} <= set(walk.passed)

"""SQLite: batches of 100, with a rollback journal. Every commit waits for the disk."""

from __future__ import annotations

from pathlib import Path

from windlass.stores.sqlite.store import SqliteStore

from .measure import Figure, drain_side_by_side, enqueue, in_turn, new_jobs, seconds


def measure_sqlite(folder: Path, jobs: int) -> list[Figure]:
    store = SqliteStore(str(folder / "bench.db"), journal_mode="delete")
    store.connections.run(store.migrate)
    adding: list[float] = []

    def round_trip() -> float:
        made = new_jobs(jobs)
        adding.append(seconds(lambda: enqueue(store, made)))
        return seconds(lambda: drain_side_by_side(store, 100))

    (took,) = in_turn(round_trip)
    store.connections.close()
    return [
        Figure("sqlite", "bulk enqueue", jobs / sorted(adding)[len(adding) // 2]),
        Figure("sqlite", "claim + complete, batch 100, rollback journal", jobs / took, wanted=25_000),
    ]

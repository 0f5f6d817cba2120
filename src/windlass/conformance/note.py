"""`note`: the progress of a running job can be read at once. Its lease does not change."""

from __future__ import annotations

from uuid import uuid4

from ..stores.store import Note
from .bench import Bench, Held
from .fencing import lost_and_taken


def saying(held: Held, fraction: float) -> Note:
    return Note(held.id, held.token, f'{{"fraction":{fraction},"text":"so far","log":[]}}')


class Noting:
    def test_all_are_written_at_once(self, bench: Bench) -> None:
        bench.add_many(5)
        held = bench.claim()
        bench.run(lambda: bench.store.note([saying(one, number / 10) for number, one in enumerate(held)]))
        assert [bench.look(one).notes.fraction for one in held] == [0.0, 0.1, 0.2, 0.3, 0.4]
        assert {bench.look(one).notes.text for one in held} == {"so far"}

    def test_the_newest_counts_and_the_outcome_keeps_it(self, bench: Bench) -> None:
        held = bench.hold()
        for fraction in (0.2, 0.9):
            bench.run(lambda: bench.store.note([saying(held, fraction)]))  # noqa: B023
        bench.accept(held.completes())
        assert bench.look(held).notes.fraction == 0.9

    def test_the_lease_is_not_prolonged(self, bench: Bench) -> None:
        held = bench.hold()
        bench.pass_time(seconds=61)
        bench.run(lambda: bench.store.note([saying(held, 0.5)]))
        assert bench.look(held).lease_expires_at == held.job.lease_expires_at
        assert len(bench.rescue()) == 1

    def test_who_has_lost_the_job_says_nothing_of_it_any_more(self, bench: Bench) -> None:
        stale, fresh = lost_and_taken(bench)
        ended = bench.hold()
        bench.accept(ended.completes())
        bench.run(lambda: bench.store.note([saying(stale, 0.7), saying(ended, 0.7), Note(uuid4(), uuid4(), "{}")]))
        assert bench.look(fresh).notes.fraction is None
        assert bench.look(ended).notes.fraction is None

    def test_two_attempts_of_one_job_in_one_batch_are_told_apart(self, bench: Bench) -> None:
        stale, fresh = lost_and_taken(bench)
        bench.run(lambda: bench.store.note([saying(fresh, 0.3), saying(stale, 0.7)]))
        assert bench.look(fresh).notes.fraction == 0.3

    def test_an_empty_batch_is_nothing(self, bench: Bench) -> None:
        bench.run(lambda: bench.store.note([]))

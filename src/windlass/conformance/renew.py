"""`renew`: it extends a lease that is still held. For a lost lease it returns the reason."""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

from ..stores.store import Lease, Renewal
from .bench import Bench
from .fencing import lost_and_taken


class Renewing:
    def test_a_lease_is_prolonged_from_now_on(self, bench: Bench) -> None:
        held = bench.hold()
        assert held.job.claimed_at is not None
        bench.pass_time(seconds=50)
        (renewal,) = bench.renew(held.lease(30))
        assert (renewal.id, renewal.cancel_requested, renewal.reason) == (held.id, False, None)
        assert renewal.expires_at is not None
        assert timedelta(seconds=80) <= renewal.expires_at - held.job.claimed_at < timedelta(seconds=140)
        assert bench.look(held).lease_expires_at == renewal.expires_at

    def test_what_is_renewed_in_time_is_not_rescued(self, bench: Bench) -> None:
        held = bench.hold()
        for _ in range(5):
            bench.pass_time(seconds=40)
            bench.renew(held.lease(60))
            assert bench.rescue() == []
        assert bench.look(held).attempt == 1
        bench.accept(held.completes())

    def test_a_lease_that_ran_out_can_be_renewed_while_nobody_has_taken_the_job(self, bench: Bench) -> None:
        held = bench.hold()
        bench.pass_time(seconds=90)
        (renewal,) = bench.renew(held.lease())
        assert renewal.expires_at is not None
        assert bench.rescue() == []

    def test_there_is_an_answer_for_each_in_order(self, bench: Bench) -> None:
        bench.add_many(5)
        held = bench.claim()
        renewals = bench.renew(*(one.lease(100 + number) for number, one in enumerate(reversed(held))))
        assert [renewal.id for renewal in renewals] == [one.id for one in reversed(held)]
        ends = [renewal.expires_at for renewal in renewals if renewal.expires_at is not None]
        assert [round((end - ends[0]).total_seconds()) for end in ends] == [0, 1, 2, 3, 4]

    def test_a_lost_lease_is_not_prolonged_and_the_reason_is_told(self, bench: Bench) -> None:
        stale, fresh = lost_and_taken(bench)
        before = bench.look(fresh).lease_expires_at
        ended = bench.hold()
        bench.accept(ended.completes())
        absent = Lease(uuid4(), uuid4(), 60)
        assert bench.renew(stale.lease(999), ended.lease(), absent) == [
            Renewal(stale.id, None, reason="taken by another"),
            Renewal(ended.id, None, reason="already finished"),
            Renewal(absent.id, None, reason="not found"),
        ]
        assert bench.look(fresh).lease_expires_at == before

    def test_two_attempts_of_one_job_in_one_batch_are_told_apart(self, bench: Bench) -> None:
        stale, fresh = lost_and_taken(bench)
        lost, kept = bench.renew(stale.lease(), fresh.lease())
        assert lost.reason == "taken by another"
        assert kept.expires_at is not None
        kept, lost = bench.renew(fresh.lease(), stale.lease())
        assert lost.reason == "taken by another"
        assert kept.expires_at is not None

    def test_what_was_sent_back_has_no_lease_to_renew(self, bench: Bench) -> None:
        held = bench.hold()
        bench.send_back(held)
        (renewal,) = bench.renew(held.lease())
        assert renewal.reason == "taken by another"

    def test_the_holder_is_told_that_someone_wants_it_cancelled(self, bench: Bench) -> None:
        wanted, other = bench.hold(), bench.hold()
        bench.cancel(wanted)
        assert [renewal.cancel_requested for renewal in bench.renew(wanted.lease(), other.lease())] == [True, False]

    def test_an_empty_batch_is_nothing(self, bench: Bench) -> None:
        assert bench.renew() == []

"""`settle` is fenced. Without the job's current token it changes nothing and is refused. A settlement that was written,
and whose answer was lost, is accepted again."""

from __future__ import annotations

from uuid import uuid4

import pytest

from ..lifecycle import COMPLETED, PENDING, State
from ..outcome import Fail, Retry, Settlement, Snooze
from ..stores.store import Refusal
from .bench import Bench, Held, facts

WAYS = {"retry": Retry(after=600), "snooze": Snooze(after=600)}


def lost_and_taken(bench: Bench, queue: str = "q") -> tuple[Held, Held]:
    """A job that its first holder has lost, and that a second holder has claimed."""
    stale = bench.hold(queue=queue)
    bench.send_back(stale)
    return stale, bench.claim_one(queue=queue)


class Fencing:
    @pytest.mark.parametrize("stale_first", [True, False])
    def test_a_stale_token_is_refused_beside_a_fresh_one(self, bench: Bench, stale_first: bool) -> None:
        bench.add_many(2)
        first, second = bench.claim()
        bench.accept(first.gives_back(), second.gives_back())
        # Both jobs have the same new token. A store that compares ids and tokens separately would match wrong pairs.
        held = {one.id: one for one in bench.claim()}
        stale, fresh = (first, held[second.id]) if stale_first else (second, held[first.id])
        batch = [stale.completes(), fresh.completes()]
        refused = bench.settle(*(batch if stale_first else reversed(batch)))
        assert refused == [Refusal(stale.id, "taken by another", stale.token)]
        assert bench.look(fresh).state == "completed"
        assert bench.look(stale).state == "running"

    @pytest.mark.parametrize("stale_first", [True, False])
    @pytest.mark.parametrize("back", [True, False])
    def test_two_attempts_of_one_job_in_one_batch_are_told_apart(
        self, bench: Bench, stale_first: bool, back: bool
    ) -> None:
        stale, fresh = lost_and_taken(bench)
        late = stale.completes('"stale"')
        due = Settlement(id=fresh.id, token=fresh.token, state=PENDING) if back else fresh.completes('"fresh"')
        (refusal,) = bench.settle(late, due) if stale_first else bench.settle(due, late)
        assert (refusal.id, refusal.token) == (stale.id, stale.token)
        job = bench.look(fresh)
        assert (job.state, job.output) == (("pending", None) if back else ("completed", "fresh"))
        assert bench.counts().total == 1

    def test_swapped_tokens_are_both_refused(self, bench: Bench) -> None:
        a, b = bench.hold(), bench.hold()
        refused = bench.settle(Held(a.job, b.token).completes(), Held(b.job, a.token).completes())
        assert {refusal.id for refusal in refused} == {a.id, b.id}
        assert bench.counts().running == 2

    def test_swapped_tokens_do_not_send_back_either(self, bench: Bench) -> None:
        a, b = bench.hold(), bench.hold()
        refused = bench.settle(Held(a.job, b.token).gives_back(), Held(b.job, a.token).gives_back())
        assert {refusal.id for refusal in refused} == {a.id, b.id}
        assert bench.counts().running == 2

    def test_the_reason_tells_what_has_happened(self, bench: Bench) -> None:
        stale, _ = lost_and_taken(bench)
        ended = bench.finish("failed")
        absent = Settlement(id=uuid4(), token=uuid4(), state=COMPLETED)
        refused = bench.settle(stale.completes(), Held(ended, uuid4()).completes(), absent)
        reasons = {refusal.id: refusal.reason for refusal in refused}
        assert reasons == {stale.id: "taken by another", ended.id: "already finished", absent.id: "not found"}

    @pytest.mark.parametrize("state", ["completed", "failed", "cancelled"])
    def test_a_late_end_does_not_touch_the_attempt_that_runs(self, bench: Bench, state: State) -> None:
        stale, fresh = lost_and_taken(bench)
        before = facts(bench.look(fresh))
        assert len(bench.settle(stale.ends(state))) == 1
        assert facts(bench.look(fresh)) == before
        bench.accept(fresh.completes())

    def test_what_waits_cannot_be_settled_with_a_token(self, bench: Bench) -> None:
        job = bench.add()
        stranger = Held(job, uuid4())
        assert bench.settle(stranger.completes()) == [Refusal(job.id, "taken by another", stranger.token)]
        assert bench.look(job).state == "pending"

    def test_what_runs_cannot_be_settled_without_a_token(self, bench: Bench) -> None:
        held = bench.hold()
        by_hand = Settlement(id=held.id, token=None, state=COMPLETED, output="1")
        assert bench.settle(by_hand) == [Refusal(held.id, "taken by another")]
        assert bench.look(held).state == "running"

    def test_what_is_finished_cannot_be_settled_without_a_token(self, bench: Bench) -> None:
        job = bench.finish("failed")
        by_hand = Settlement(id=job.id, token=None, state=COMPLETED, output="1")
        assert bench.settle(by_hand) == [Refusal(job.id, "already finished")]
        assert bench.look(job).state == "failed"


class Rescued:
    """A holder that settles its job after the job was rescued."""

    def rescued(self, bench: Bench, max_attempts: int) -> Held:
        held = bench.hold(queue="q", max_attempts=max_attempts)
        bench.pass_time(minutes=10)
        bench.rescue()
        return held

    @pytest.mark.parametrize("late", ["completed", "failed", "cancelled", "retry", "snooze"])
    @pytest.mark.parametrize("max_attempts", [1, 5])
    def test_whatever_it_says_is_refused(self, bench: Bench, late: str, max_attempts: int) -> None:
        held = self.rescued(bench, max_attempts)
        before = facts(bench.look(held))
        settlement = held.raises(WAYS[late]) if late in WAYS else held.ends(late)  # type: ignore[arg-type]
        reason = "already finished" if max_attempts == 1 else "taken by another"
        assert bench.settle(settlement) == [Refusal(held.id, reason, held.token)]  # type: ignore[arg-type]
        assert facts(bench.look(held)) == before

    def test_it_does_not_disturb_the_next_attempt(self, bench: Bench) -> None:
        held = self.rescued(bench, 5)
        bench.pass_time(minutes=1)
        fresh = bench.claim_one(queue="q")
        assert len(bench.settle(held.completes('"late"'))) == 1
        bench.accept(fresh.completes('"fresh"'))
        assert bench.look(held).output == "fresh"


class SentAgain:
    """The answer was lost: the same settlement is accepted a second time, and changes nothing."""

    @pytest.mark.parametrize("state", ["completed", "failed", "cancelled"])
    def test_an_end_sent_again_is_accepted(self, bench: Bench, state: State) -> None:
        held = bench.hold()
        bench.accept(held.ends(state))
        before = facts(bench.look(held))
        bench.pass_time(hours=1)
        bench.accept(held.ends(state))
        assert facts(bench.look(held)) == before
        assert bench.counts()[state] == bench.counts().total == 1

    @pytest.mark.parametrize("way", WAYS)
    def test_what_was_sent_back_is_accepted_again(self, bench: Bench, way: str) -> None:
        held = bench.hold()
        bench.accept(held.raises(WAYS[way]))
        before = facts(bench.look(held))
        bench.pass_time(minutes=1)
        bench.accept(held.raises(WAYS[way]))
        assert facts(bench.look(held)) == before

    def test_also_when_the_next_attempt_has_begun(self, bench: Bench) -> None:
        stale, fresh = lost_and_taken(bench)
        bench.accept(Settlement(id=stale.id, token=stale.token, state=PENDING, delay_seconds=0))
        bench.accept(fresh.completes())

    def test_also_in_a_batch_with_what_is_new(self, bench: Bench) -> None:
        again, new = bench.hold(), bench.hold()
        bench.accept(again.completes())
        bench.accept(again.completes(), new.completes())
        assert bench.counts().completed == 2

    def test_also_twice_in_one_batch(self, bench: Bench) -> None:
        done, back = bench.hold(), bench.hold()
        bench.accept(done.completes(), done.completes(), back.raises(WAYS["retry"]), back.raises(WAYS["retry"]))
        assert (bench.counts().completed, bench.counts().pending) == (1, 1)

    def test_what_was_cancelled_instead_of_sent_back_is_accepted_again(self, bench: Bench) -> None:
        held = bench.hold()
        bench.cancel(held)
        bench.accept(held.raises(WAYS["retry"]))
        bench.accept(held.raises(WAYS["retry"]))
        assert bench.look(held).state == "cancelled"

    def test_another_outcome_for_an_attempt_that_has_ended_is_refused(self, bench: Bench) -> None:
        held = bench.hold()
        bench.accept(held.completes('"done"'))
        assert bench.settle(held.raises(Fail("no"))) == [Refusal(held.id, "already finished", held.token)]
        assert bench.settle(held.raises(WAYS["retry"])) == [Refusal(held.id, "already finished", held.token)]
        assert bench.look(held).state == "completed"

    def test_a_completion_for_an_attempt_that_was_sent_back_is_refused(self, bench: Bench) -> None:
        held = bench.hold()
        bench.accept(held.raises(WAYS["retry"]))
        assert bench.settle(held.completes()) == [Refusal(held.id, "taken by another", held.token)]
        assert bench.look(held).state == "pending"

    def test_of_a_job_that_keeps_nothing_there_is_no_trace_to_find(self, bench: Bench) -> None:
        held = bench.hold(keep_seconds=0)
        bench.accept(held.completes())
        assert bench.settle(held.completes()) == [Refusal(held.id, "not found", held.token)]

    def test_sent_by_many_at_once_it_counts_once(self, bench: Bench) -> None:
        held = bench.hold()
        bench.at_once(6, lambda _: bench.accept(held.completes()))
        assert bench.counts().completed == bench.counts().total == 1

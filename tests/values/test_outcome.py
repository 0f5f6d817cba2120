"""How an attempt ends: the decision is pure, so each law is checked for any job."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import UUID, uuid4

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass import Cancel, Fail, InvalidInput, Retry, Snooze
from windlass.backoff import Exponential, Fixed, Polynomial
from windlass.job import ATTEMPTS_KEPT, ERROR_LIMIT, AttemptRecord, Job, JobError
from windlass.lifecycle import LIVE, STATES, State
from windlass.outcome import (
    STAGGER_MOST,
    Settlement,
    decide,
    decide_any_rescue,
    decide_blocked,
    decide_expiry,
    decide_rescue,
    describe_error,
    give_back,
    stagger_seconds,
    was_accepted,
)
from windlass.policy import UNLIMITED, Policy

NOON = datetime(2025, 5, 5, 12, tzinfo=UTC)
TOKEN = uuid4()


def job_of(policy: Policy | None = None, **fields: Any) -> Job[Any]:
    """A job that runs, as a store gives it to a worker."""
    given: dict[str, Any] = {
        **{"id": uuid4(), "type": "task", "queue": "default", "tenant": "", "state": "running", "rank": 0},
        **{"run_at_raw": NOON, "created_at_raw": NOON, "input_json": "{}", "attempt": 1, "worker": "one"},
        **{"claimed_at_raw": NOON, "lease_expires_at_raw": NOON + timedelta(minutes=1)},
    }
    if policy is not None:
        given |= {"max_attempts_raw": policy.max_attempts, "lease_seconds_raw": policy.lease_seconds}
        given |= {"keep_seconds_raw": policy.keep_seconds, "policy_json": policy.details_json()}
    return Job(**given | fields)


def decided(job: Job[Any], result: object, **more: Any) -> Settlement:
    return decide(job, TOKEN, result, random=lambda: 0.5, **more)


def story(settlement: Settlement) -> list[AttemptRecord]:
    return msgspec.json.decode(settlement.attempts or "[]", type=list[AttemptRecord])


def error_of(settlement: Settlement) -> JobError:
    assert settlement.error is not None
    return msgspec.json.decode(settlement.error, type=JobError)


chances = st.floats(0, 1, exclude_max=True)
attempts = st.integers(1, 1000)
limits = st.one_of(st.just(UNLIMITED), st.integers(1, 1000))
backoffs = st.sampled_from([Fixed("0s"), Fixed("10s"), Polynomial("10s", 2), Exponential(), Exponential("1s", "1h")])
errors = st.sampled_from(
    [ValueError("no"), OSError(), Retry(), Retry(after=3), Snooze(after=3), Snooze(at=NOON), Fail(), Cancel()]
)
jobs = st.builds(
    lambda limit, backoff, attempt: job_of(Policy(max_attempts=limit, backoff=backoff), attempt=attempt),
    *(limits, backoffs, attempts),
)


def test_a_returned_value_completes_the_job() -> None:
    settlement = decided(job_of(), '"done"')
    assert (settlement.state, settlement.output, settlement.error) == ("completed", '"done"', None)


def test_a_result_that_is_not_encoded_is_a_mistake_of_the_worker() -> None:
    with pytest.raises(TypeError, match="not in dict"):
        decided(job_of(), {"not": "text"})


@given(jobs, errors, st.booleans())
def test_a_settlement_carries_the_id_and_the_token_of_its_attempt(job: Job[Any], error: Exception, may: bool) -> None:
    settlement = decided(job, error, retryable=may)
    assert (settlement.id, settlement.token) == (job.id, TOKEN)


@given(jobs, errors, st.booleans())
def test_only_three_states_follow_an_error(job: Job[Any], error: Exception, may: bool) -> None:
    assert decided(job, error, retryable=may).state in ("pending", "failed", "cancelled")


@given(jobs, st.sampled_from([ValueError("no"), Retry(), Retry(after=3), Retry(at=NOON)]))
def test_an_error_in_the_last_attempt_fails_the_job_and_no_earlier_one_does(job: Job[Any], error: Exception) -> None:
    is_last = job.max_attempts is not None and job.attempt >= job.max_attempts
    assert decided(job, error).state == ("failed" if is_last else "pending")


@given(jobs)
def test_after_an_error_that_is_not_to_be_retried_the_job_has_failed(job: Job[Any]) -> None:
    assert decided(job, ValueError("no"), retryable=False).state == "failed"


@given(jobs, st.booleans())
def test_a_snooze_spends_no_attempt_in_the_last_one_either(job: Job[Any], may: bool) -> None:
    settlement = decided(job, Snooze(after=7), retryable=may)
    assert (settlement.state, settlement.refund, settlement.delay_seconds) == ("pending", 1, 7)
    assert (settlement.error, settlement.attempts) == (None, None)


@given(jobs)
def test_fail_and_cancel_are_final_whatever_attempts_are_left(job: Job[Any]) -> None:
    assert decided(job, Fail("enough")).state == "failed"
    assert decided(job, Cancel("not wanted")).state == "cancelled"


@given(jobs, errors)
def test_only_a_snooze_gives_the_attempt_back(job: Job[Any], error: Exception) -> None:
    assert decided(job, error).refund == isinstance(error, Snooze)


@given(backoffs, attempts, chances)
def test_the_next_attempt_waits_as_the_backoff_says(backoff: Any, attempt: int, chance: float) -> None:
    job = job_of(Policy(max_attempts=UNLIMITED, backoff=backoff), attempt=attempt)
    settlement = decide(job, TOKEN, ValueError("no"), random=lambda: chance)
    assert settlement.delay_seconds == backoff.delay(attempt, lambda: chance).total_seconds()


def test_a_retry_that_names_its_moment_overrides_the_backoff() -> None:
    job = job_of(Policy(backoff=Fixed("1h")))
    assert decided(job, Retry(after=3)).delay_seconds == 3
    at_noon = decided(job, Retry(at=NOON))
    assert (at_noon.delay_seconds, at_noon.run_at) == (None, NOON)
    assert decided(job, Retry()).delay_seconds == 3600


def test_a_job_that_was_enqueued_by_name_alone_has_the_default_policy() -> None:
    assert decided(job_of(attempt=19), ValueError("no")).state == "pending"
    assert decided(job_of(attempt=20), ValueError("no")).state == "failed"


# The record of attempts


@given(st.integers(0, 30))
def test_the_last_attempts_are_kept_with_the_one_that_has_just_ended(count: int) -> None:
    earlier = [
        AttemptRecord(number=number, started_at=NOON, ended_at=NOON, worker="one", error=JobError("E", "no"))
        for number in range(1, count + 1)
    ]
    job = job_of(attempt=count + 1, attempts_json=msgspec.json.encode(earlier).decode())
    kept = story(decided(job, ValueError("again"), ended_at=NOON + timedelta(seconds=5)))
    assert [record.number for record in kept] == list(range(1, count + 2))[-ATTEMPTS_KEPT:]
    assert (kept[-1].started_at, kept[-1].ended_at, kept[-1].worker) == (NOON, NOON + timedelta(seconds=5), "one")
    assert str(kept[-1].error) == "ValueError: again"


@given(st.text(alphabet=st.characters(), max_size=50).map(lambda text: text * 500))
def test_any_message_can_be_stored(message: str) -> None:
    described = describe_error(ValueError(message))
    assert "\0" not in described.message
    described.message.encode("utf-8")
    assert msgspec.json.decode(msgspec.json.encode(described), type=JobError) == described
    assert describe_error(ValueError("x" * 20_000)).message == "x" * ERROR_LIMIT


def test_an_exception_whose_own_methods_fail_is_described() -> None:
    class Hostile(Exception):
        def __str__(self) -> str:
            raise SystemExit

    assert describe_error(Hostile()).type == "Hostile"
    assert "cannot be shown" in describe_error(Hostile()).message


def test_values_of_redacted_arguments_are_not_in_the_error() -> None:
    job = job_of(Policy(redact=("password",)), input_json='{"password": "hunter2-very-long"}')
    settlement = decided(job, ValueError("wrong password hunter2-very-long"))
    assert "hunter2" not in str(settlement.error) + str(settlement.attempts)


# Leases that ran out


@given(jobs, chances, st.integers(1, 5000))
def test_a_rescued_job_waits_its_backoff_and_not_longer_than_the_stagger(
    job: Job[Any], chance: float, count: int
) -> None:
    stagger = stagger_seconds(count)
    assert 0 < stagger <= STAGGER_MOST
    rescued = decide_rescue(job, TOKEN, random=lambda: chance, stagger_seconds=stagger)
    plain = decide(job, TOKEN, ValueError("no"), random=lambda: chance)
    assert rescued.state == plain.state
    assert error_of(rescued).type == "LeaseExpired"
    if rescued.state == "pending":
        assert 0 <= (rescued.delay_seconds or 0) - (plain.delay_seconds or 0) <= stagger + 1e-6


@given(jobs, chances)
def test_a_job_whose_handler_was_not_called_comes_back_with_its_attempt(job: Job[Any], chance: float) -> None:
    settlement = decide_rescue(job, TOKEN, random=lambda: chance, stagger_seconds=2.0, begun=False)
    assert (settlement.state, settlement.refund, settlement.error) == ("pending", 1, None)
    assert settlement.delay_seconds == chance * 2.0


@given(limits, attempts, st.booleans())
def test_a_rescue_carries_out_a_cancellation(limit: int, attempt: int, begun: bool) -> None:
    job = job_of(Policy(max_attempts=limit), attempt=attempt, cancel_requested=True)
    assert decide_rescue(job, TOKEN, random=lambda: 0.0, stagger_seconds=1.0, begun=begun).state == "cancelled"


def test_a_row_that_cannot_be_read_has_failed_and_stops_no_rescue() -> None:
    def read() -> Job[Any]:
        raise ValueError("no such column")

    id = uuid4()
    settlement = decide_any_rescue(id, TOKEN, read, random=lambda: 0.0, stagger_seconds=1.0)
    assert (settlement.id, settlement.state) == (id, "failed")
    assert "no such column" in str(error_of(settlement))


# Settlements without an attempt


def test_a_job_that_was_not_started_is_given_back_as_it_was() -> None:
    job = job_of()
    assert give_back(job, TOKEN) == Settlement(id=job.id, token=TOKEN, state="pending", refund=1)


@pytest.mark.parametrize("moment", [NOON, NOON.astimezone(timezone(timedelta(hours=5))), None])
def test_an_expired_job_is_cancelled_and_says_when(moment: datetime | None) -> None:
    settlement = decide_expiry(uuid4(), moment)
    assert (settlement.state, settlement.token) == ("cancelled", None)
    expected = "an unknown time" if moment is None else "2025-05-05 12:00:00.000+00:00"
    assert expected in str(error_of(settlement))


@pytest.mark.parametrize(("state", "words"), [("failed", "has failed"), ("cancelled", "was cancelled")])
def test_a_job_that_is_cancelled_with_its_blocker_names_it(state: State, words: str) -> None:
    blocker = uuid4()
    settlement = decide_blocked(uuid4(), blocker, "payment", state)
    assert settlement.state == "cancelled"
    assert f"job {blocker} (payment)" in str(error_of(settlement))
    assert str(error_of(settlement)).endswith(words)


# A settlement that is sent again, since its answer was lost


settled_states = st.sampled_from(["completed", "failed", "cancelled", "pending"])
tokens = st.sampled_from([TOKEN, uuid4(), None])


@given(settled_states, st.sampled_from(STATES), tokens, tokens)
def test_a_settlement_was_accepted_only_where_its_own_token_is_found(
    wanted: State, found: State, token: UUID | None, previous: UUID | None
) -> None:
    settlement = Settlement(id=uuid4(), token=TOKEN, state=wanted)
    accepted = was_accepted(settlement, state=found, token=token, previous_token=previous)
    if found in LIVE:
        assert accepted == (wanted == "pending" and previous == TOKEN)
    else:
        same = wanted == found or (wanted, found) == ("pending", "cancelled")
        assert accepted == (same and token == TOKEN)


@given(settled_states, st.sampled_from(STATES), tokens, tokens)
def test_a_settlement_without_a_token_is_never_taken_for_an_accepted_one(
    wanted: State, found: State, token: UUID | None, previous: UUID | None
) -> None:
    settlement = Settlement(id=uuid4(), token=None, state=wanted)
    assert not was_accepted(settlement, state=found, token=token, previous_token=previous)


# Moments that a handler names


@pytest.mark.parametrize("outcome", [Retry, Snooze])
@pytest.mark.parametrize(
    ("moment", "reason"),
    [
        ({"after": 1, "at": NOON}, "not both"),
        ({"at": datetime(2025, 5, 5)}, "timezone"),
        ({"at": "tomorrow"}, "timezone"),
        ({"at": datetime.max.replace(tzinfo=timezone(-timedelta(hours=5)))}, "1 to 9999"),
    ],
)
def test_a_moment_that_makes_no_sense_is_refused(
    outcome: Callable[..., Exception], moment: dict[str, Any], reason: str
) -> None:
    with pytest.raises(InvalidInput, match=reason):
        outcome(**moment)


def test_a_snooze_needs_a_moment() -> None:
    with pytest.raises(InvalidInput, match="when should the job come back"):
        Snooze()

"""The policy of a job: it is written into a row and read again, and a wrong row gives the default."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass import InvalidInput
from windlass.backoff import DEFAULT_BACKOFF, Exponential, Fixed, Polynomial
from windlass.lifecycle import STATES, State
from windlass.operation import check_connection
from windlass.policy import (
    DEFAULT,
    FOR_EVER,
    KEEP_FAILED_SECONDS,
    KEEP_SECONDS,
    UNLIMITED,
    UNSET,
    Policy,
    attempts_option,
    filled_in,
    is_partial,
    keep_option,
    kept_seconds,
    partial_json,
    seconds_option,
)

seconds = st.integers(0, 10**6)
durations = seconds.map(lambda count: timedelta(seconds=count))
backoffs = st.one_of(
    st.just(DEFAULT_BACKOFF),
    st.builds(Fixed, durations),
    st.builds(Polynomial, durations, st.integers(0, 5)),
    st.builds(Exponential, durations, durations, st.booleans()),
)
policies = st.builds(
    Policy,
    max_attempts=st.integers(0, 10**6),
    lease_seconds=st.floats(0.001, 10**6),
    keep_seconds=st.none() | st.integers(-1, 10**9),
    backoff=backoffs,
    timeout_seconds=st.one_of(st.none(), st.floats(0.001, 10**6)),
    redact=st.lists(st.text(min_size=1, max_size=10), max_size=3).map(tuple),
)


@given(policies)
def test_a_policy_that_was_written_is_read_as_it_was(policy: Policy) -> None:
    columns = (policy.max_attempts, policy.lease_seconds, policy.keep_seconds, policy.details_json())
    assert Policy.from_columns(*columns) == policy


def test_the_default_needs_no_details_in_the_row() -> None:
    assert DEFAULT.details_json() is None
    assert Policy.from_columns(None, None, None, None) == DEFAULT


@given(st.one_of(st.text(), st.builds(lambda value: msgspec.json.encode(value).decode(), st.integers())))
def test_details_that_make_no_sense_give_the_default(details: str) -> None:
    assert Policy.from_columns(3, 5.0, 7, details) == Policy(max_attempts=3, lease_seconds=5.0, keep_seconds=7)


@pytest.mark.parametrize(
    "details", ['{"timeout": "soon"}', '{"redact": 3}', '{"backoff": {"kind": "?"}}', "[]", "null"]
)
def test_a_field_that_makes_no_sense_wedges_nothing(details: str) -> None:
    assert Policy.from_columns(None, None, None, details) == DEFAULT


@given(st.integers(1, 100), st.integers(1, 200))
def test_the_last_attempt_is_the_one_that_reaches_the_limit(limit: int, attempt: int) -> None:
    assert Policy(max_attempts=limit).is_last(attempt) == (attempt >= limit)
    assert not Policy(max_attempts=UNLIMITED).is_last(attempt)


@given(policies, st.dictionaries(st.sampled_from(["timeout", "backoff"]), st.none() | st.integers(1, 9), max_size=2))
def test_options_that_the_caller_gave_win_over_those_of_the_task(policy: Policy, given_options: dict[str, Any]) -> None:
    details = partial_json(given_options)
    assert is_partial(details)
    filled = filled_in(details, policy.details_json())
    assert not is_partial(filled)
    of_task = msgspec.json.decode(policy.details_json() or "{}")
    assert msgspec.json.decode(filled) == of_task | given_options


@pytest.mark.parametrize("details", [None, "", "{}", 3, b"{}"])
def test_other_details_are_not_partial(details: object) -> None:
    assert not is_partial(details)


# How long a finished job is kept


@pytest.mark.parametrize("state", STATES)
@given(keep=st.integers(-1, 10**9))
def test_a_job_is_kept_as_long_as_its_row_says(state: State, keep: int) -> None:
    assert kept_seconds(keep, state) == keep
    assert kept_seconds(None, state) == (KEEP_FAILED_SECONDS if state == "failed" else KEEP_SECONDS)


@given(seconds)
def test_a_keep_that_was_given_is_stored_as_it_is(count: int) -> None:
    assert keep_option(count, None) == keep_option(count, 5) == count


def test_seven_days_are_no_special_value() -> None:
    assert keep_option("7d", None) == KEEP_SECONDS
    assert kept_seconds(KEEP_SECONDS, "failed") == KEEP_SECONDS


def test_keep_for_ever() -> None:
    assert keep_option(None, 5) == keep_option("forever", 5) == FOR_EVER
    assert keep_option(0, 5) == 0
    assert keep_option(UNSET, 5) == 5
    assert keep_option(UNSET, None) is None


# Options


@given(st.integers(1, 1_000_000))
def test_max_attempts_is_a_number_or_none_for_ever(count: int) -> None:
    assert attempts_option(count, 7) == count
    assert attempts_option(None, 7) == UNLIMITED
    assert attempts_option(UNSET, 7) == 7


@pytest.mark.parametrize("wrong", [0, -1, 1_000_001, True, "3", 2.0])
def test_max_attempts_that_makes_no_sense_is_refused(wrong: Any) -> None:
    with pytest.raises(InvalidInput, match="max_attempts is a number from 1 to 1,000,000"):
        attempts_option(wrong, 7)


def test_a_duration_that_must_not_be_zero() -> None:
    assert seconds_option("lease", "2s", 1.0) == 2.0
    assert seconds_option("lease", None, 1.0) is None
    assert seconds_option("lease", UNSET, 1.0) == 1.0
    with pytest.raises(InvalidInput, match="lease must be longer than zero"):
        seconds_option("lease", 0, 1.0)


def test_a_connection_that_is_none_is_a_mistake() -> None:
    assert check_connection(UNSET) is None
    assert check_connection("a connection") == "a connection"
    with pytest.raises(InvalidInput, match="connection=None"):
        check_connection(None)

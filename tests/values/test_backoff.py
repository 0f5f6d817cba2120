"""Backoffs: how they grow, that they never overflow, and that junk in a row stops nobody."""

from __future__ import annotations

import json
import math
from dataclasses import FrozenInstanceError
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.backoff import (
    DEFAULT_BACKOFF,
    LONGEST_WAIT,
    Exponential,
    Fixed,
    Polynomial,
    as_backoff,
    from_json,
    to_json,
)
from windlass.errors import InvalidInput


def seconds(backoff, attempts, random=lambda: 1.0):
    return [backoff.delay(attempt, random).total_seconds() for attempt in attempts]


def test_fixed_is_always_the_same():
    assert seconds(Fixed("10m"), [1, 2, 10_000]) == [600, 600, 600]


def test_polynomial_grows_by_its_power():
    assert seconds(Polynomial(), [1, 2, 3]) == [10, 40, 90]
    assert seconds(Polynomial("1s", power=1), [1, 2, 3]) == [1, 2, 3]
    assert seconds(Polynomial("1s", power=0.5), [4]) == [2]


def test_exponential_doubles_up_to_its_cap():
    assert seconds(Exponential(jitter=False), [1, 2, 3, 9, 10, 10_000]) == [1, 2, 4, 256, 300, 300]


def test_jitter_lies_between_half_and_all():
    assert seconds(Exponential("4s"), [2], random=lambda: 0.0) == [4]
    assert seconds(Exponential("4s"), [2], random=lambda: 0.5) == [6]
    assert seconds(Exponential("4s"), [2], random=lambda: 1.0) == [8]


def test_zero_stays_zero():
    for backoff in (Fixed(0), Polynomial(0, 1000), Exponential(0)):
        assert seconds(backoff, [1, 7, 10_000]) == [0, 0, 0]


def test_nothing_overflows():
    assert Polynomial("1000d", power=1e9).delay(10_000, lambda: 1.0) == LONGEST_WAIT
    assert Polynomial("300000d", power=80).delay(10_000, lambda: 1.0) == LONGEST_WAIT
    assert Exponential("300000d", "300000d").delay(10**9, lambda: 1.0) == timedelta(days=300_000)


def test_an_attempt_below_one_counts_as_the_first():
    assert seconds(Exponential(jitter=False), [0, -5]) == [1, 1]
    assert seconds(Polynomial(), [0, -5]) == [10, 10]


def test_equal_lengths_make_equal_backoffs():
    assert Fixed("10m") == Fixed(600) == Fixed(delay="PT10M")
    assert Exponential("1s", "5m") == Exponential() == DEFAULT_BACKOFF
    assert len({Polynomial(10), Polynomial("10s")}) == 1


def test_frozen():
    with pytest.raises(FrozenInstanceError):
        Fixed(1).interval = timedelta(0)  # type: ignore[misc]


@pytest.mark.parametrize(
    "make",
    [
        lambda: Fixed(-1),
        lambda: Fixed("soon"),
        lambda: Polynomial("x"),
        lambda: Polynomial(power=-1),
        lambda: Polynomial(power=math.nan),
        lambda: Polynomial(power=math.inf),
        lambda: Polynomial(power=True),
        lambda: Polynomial(power="2"),  # type: ignore[arg-type]
        lambda: Exponential(base=-1),
        lambda: Exponential(cap=math.inf),
        lambda: Exponential(jitter=1),  # type: ignore[arg-type]
        lambda: as_backoff(None),  # type: ignore[arg-type]
        lambda: as_backoff(True),
    ],
)
def test_refused_when_made(make):
    with pytest.raises(InvalidInput):
        make()


def test_a_plain_duration_means_fixed():
    assert as_backoff("10m") == Fixed(600)
    assert as_backoff(5) == Fixed(5)
    backoff = Polynomial()
    assert as_backoff(backoff) is backoff


lengths = st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=3650))
backoffs = st.one_of(
    st.builds(Fixed, lengths),
    st.builds(Polynomial, lengths, st.integers(0, 50) | st.floats(0, 50)),
    st.builds(Exponential, lengths, lengths, st.booleans()),
)


@given(backoffs)
def test_a_row_keeps_it(backoff):
    assert from_json(json.loads(json.dumps(to_json(backoff)))) == backoff


@given(backoffs, st.integers(1, 10_000), st.floats(0, 1))
def test_a_wait_is_always_sensible(backoff, attempt, random):
    assert timedelta(0) <= backoff.delay(attempt, lambda: random) <= LONGEST_WAIT


@pytest.mark.parametrize(
    "junk",
    [
        None,
        "exponential",
        7,
        [],
        {},
        {"kind": "sundial"},
        {"kind": ["fixed"]},
        {"kind": "fixed"},
        {"kind": "fixed", "delay": -1},
        {"kind": "fixed", "delay": None},
        {"kind": "polynomial", "base": 1, "power": "two"},
        {"kind": "polynomial", "base": {}, "power": 2},
        {"kind": "exponential", "base": math.nan, "cap": 1, "jitter": True},
        {"kind": "exponential", "base": 1, "cap": 1, "jitter": "yes"},
    ],
)
def test_junk_gives_the_default(junk):
    assert from_json(junk) == Exponential()

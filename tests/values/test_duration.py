"""Durations: what is accepted, and that all else is refused with a helpful message."""

from __future__ import annotations

import math
from contextlib import suppress
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.duration import LONGEST, to_seconds, to_timedelta
from windlass.errors import InvalidInput, WindlassError


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (timedelta(minutes=10), 600),
        (0, 0),
        (90, 90),
        (1.5, 1.5),
        ("90", 90),
        ("0.25", 0.25),
        ("10m", 600),
        ("1h30m", 5400),
        ("1h 30m", 5400),
        (" 90s ", 90),
        ("250ms", 0.25),
        ("1s500ms", 1.5),
        ("1.5h", 5400),
        ("7d", 7 * 86_400),
        ("2w", 14 * 86_400),
        ("1w2d3h4m5s6ms", 7 * 86_400 + 2 * 86_400 + 3 * 3600 + 4 * 60 + 5.006),
        ("PT10M", 600),
        ("P1DT2H", 93_600),
        ("P2W", 14 * 86_400),
        ("PT0.5S", 0.5),
        ("PT0,5S", 0.5),
        ("PT1H30M15S", 5415),
        ("P3D", 3 * 86_400),
    ],
)
def test_accepted(value, seconds):
    assert to_seconds(value) == seconds
    assert to_timedelta(value) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "value",
    [
        True,
        None,
        b"10m",
        [],
        object(),
        -1,
        -0.001,
        timedelta(seconds=-1),
        math.nan,
        math.inf,
        10**400,
        pytest.param(10**5000, id="digits"),
        1e300,
        timedelta.max,
        LONGEST + timedelta(microseconds=1),
        "",
        " ",
        "-5m",
        "+5m",
        "@daily",
        "10 minutes",
        "10x",
        "10M",
        "m",
        "30m1h",
        "1m1m",
        "1h30",
        "nan",
        "inf",
        "1e3",
        "١٠m",
        "9" * 5000,
        "9" * 400 + "w",
        "99999999999d",
        "P",
        "PT",
        "P1DT",
        "PT1D",
        "P1H",
        "-PT10M",
        "pt10m",
        "PT10M5",
    ],
)
def test_a_refusal_names_the_accepted_forms(value):
    with pytest.raises(InvalidInput, match="a duration is a timedelta") as refusal:
        to_timedelta(value)
    assert len(str(refusal.value)) < 400
    assert isinstance(refusal.value, WindlassError)


@pytest.mark.parametrize("value", ["P1Y", "P1M", "P1Y2M3DT4H", "P1MT1M"])
def test_years_and_months_have_no_length(value):
    with pytest.raises(InvalidInput, match="no fixed length"):
        to_timedelta(value)


@given(st.timedeltas(min_value=timedelta(0), max_value=LONGEST))
def test_every_length_survives(length):
    assert to_timedelta(length) == length
    assert to_timedelta(to_seconds(length)) == timedelta(seconds=length.total_seconds())


@given(st.text(max_size=12))
def test_text_is_a_length_or_invalid(text):
    with suppress(InvalidInput):
        assert timedelta(0) <= to_timedelta(text) <= LONGEST

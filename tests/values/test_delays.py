"""Delays grow from one try to the next, up to a limit."""

from __future__ import annotations

from itertools import islice

from windlass.duration import Delays


def test_they_double_up_to_the_longest() -> None:
    assert list(islice(Delays(0.1, 0.5), 5)) == [0.1, 0.2, 0.4, 0.5, 0.5]


def test_they_grow_by_a_factor() -> None:
    assert list(islice(Delays(1.0, 2.0, factor=1.5), 3)) == [1.0, 1.5, 2.0]


def test_after_a_reset_they_begin_again() -> None:
    delays = Delays(1.0, 8.0)
    assert [next(delays), next(delays)] == [1.0, 2.0]
    delays.reset()
    assert next(delays) == 1.0


def test_jitter_spreads_them_without_making_them_grow_faster() -> None:
    delays = list(islice(Delays(1.0, 4.0, jitter=(0.5, 1.5)), 100))
    assert 0.5 <= delays[0] <= 1.5
    assert all(2.0 <= one <= 6.0 for one in delays[2:])
    assert len(set(delays)) > 50

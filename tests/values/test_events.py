"""The list of events, and the values that hooks receive."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from windlass import InvalidInput, Windlass
from windlass.events import EVENTS, Event, check_event
from windlass.job import Job
from windlass.worker.events import Event as FromWorker

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def job(*, run_at: float, created_at: float, claimed_at: float | None) -> Job:
    """Its moments are seconds after noon."""
    claimed = None if claimed_at is None else NOON + timedelta(seconds=claimed_at)
    return Job(
        uuid4(), "send", "mail", "", "running", 0, NOON + timedelta(seconds=run_at),
        NOON + timedelta(seconds=created_at), "{}", claimed_at_raw=claimed,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("run_at", "created_at", "claimed_at", "wait"),
    [
        (0, 0, 1.5, 1.5),
        (10, 0, 12, 2.0),  # due after it was created
        (-100, 0, 3, 3.0),  # due before it was created
        (10, 0, 9, 0.0),  # the clock of the store was set back
        (0, 0, None, None),
    ],
)
def test_a_job_waits_from_its_due_time_to_its_claim(
    run_at: float, created_at: float, claimed_at: float | None, wait: float | None
) -> None:
    one = job(run_at=run_at, created_at=created_at, claimed_at=claimed_at)
    assert Event("started", one.id, one).wait == wait


def test_without_a_job_the_wait_is_not_known() -> None:
    assert Event("rescued", uuid4(), None).wait is None


def test_the_event_is_found_in_both_places() -> None:
    assert FromWorker is Event


@pytest.mark.parametrize("name", EVENTS)
def test_each_event_has_a_meaning_and_can_be_listened_to(name: str) -> None:
    check_event(name)
    assert EVENTS[name]
    assert "|" not in EVENTS[name]


@pytest.mark.parametrize(
    ("name", "nearest"), [("complete", "completed"), ("lease-lost", "lease_lost"), ("Failed", "failed")]
)
def test_a_wrong_name_is_refused_with_the_nearest_one(name: str, nearest: str) -> None:
    with pytest.raises(InvalidInput, match=f"there is no event '{name}' .do you mean '{nearest}'.*: enqueued, started"):
        Windlass("sqlite://").on(name)


@pytest.mark.parametrize("name", ["xyz", "", None, 7, [7], print])
def test_a_name_that_resembles_none_is_refused_with_the_list(name: Any) -> None:
    with pytest.raises(InvalidInput, match=r"there is no event .*; there are: enqueued, started") as refused:
        Windlass("sqlite://").on(name)
    assert "mean" not in str(refused.value)

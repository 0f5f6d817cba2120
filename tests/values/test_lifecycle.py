"""The states of a job: which event leads where, as laws of the whole table."""

from __future__ import annotations

from typing import get_args

import pytest

from windlass.lifecycle import FINISHED, LIVE, STATES, TRANSITIONS, Event, State, allows, why_not

EVENTS: tuple[Event, ...] = get_args(Event)
EACH = [(event, state) for event in EVENTS for state in STATES]


def reachable(start: State) -> set[State | None]:
    found: set[State | None] = set()
    following: list[State] = [start]
    while following:
        state = following.pop()
        for sources, target in TRANSITIONS.values():
            if state in sources and target not in found:
                found.add(target)
                following += [target] if target else []
    return found


def test_each_event_has_its_transition() -> None:
    assert set(TRANSITIONS) == set(EVENTS)


def test_a_state_is_live_or_finished() -> None:
    assert set(STATES) == LIVE | FINISHED == set(get_args(State))
    assert not LIVE & FINISHED


@pytest.mark.parametrize(("event", "state"), EACH)
def test_an_event_is_allowed_where_the_table_has_it(event: Event, state: State) -> None:
    assert allows(event, state) == (state in TRANSITIONS[event][0])


@pytest.mark.parametrize(("event", "state"), [pair for pair in EACH if not allows(*pair)])
def test_a_refusal_names_the_state(event: Event, state: State) -> None:
    assert why_not(event, state).startswith(f"a {state} job cannot be ")


def test_only_a_claim_leads_to_running() -> None:
    assert [event for event, (_, target) in TRANSITIONS.items() if target == "running"] == ["claim"]
    assert TRANSITIONS["claim"][0] == {"pending"}


def test_only_a_running_job_cannot_be_deleted() -> None:
    assert {state for state in STATES if not allows("delete", state)} == {"running"}


def test_a_completed_job_stays_completed_until_it_is_deleted() -> None:
    assert reachable("completed") == {None}


@pytest.mark.parametrize("state", ["failed", "cancelled"])
def test_a_failed_or_cancelled_job_can_run_again(state: State) -> None:
    assert "running" in reachable(state)


@pytest.mark.parametrize("state", sorted(LIVE))
def test_a_live_job_can_reach_each_end(state: State) -> None:
    assert reachable(state) >= FINISHED


def test_a_job_that_has_left_blocked_is_never_blocked_by_an_event() -> None:
    assert all("blocked" not in reachable(state) for state in STATES)

"""The states of a job and the transitions between them. No other module decides which state follows which.

    blocked ──unblock──▶ pending ──claim──▶ running ──complete──▶ completed
                            ▲                  │ ├────fail──────▶ failed ─────┐
                            │                  │ └────cancel────▶ cancelled ──┤
                            └──retry, snooze, give back, rescue──┘            │
                            └──────────────────bring back─────────────────────┘

A caller can cancel a job that waits, blocked or pending (cancel). A job that was not started before its `expires` time
is cancelled too (expire).

`blocked`, `pending` and `running` are live states. The other three are finished: a job leaves them only when a caller
retries it (bring back) or deletes it.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

State: TypeAlias = Literal["blocked", "pending", "running", "completed", "failed", "cancelled"]

BLOCKED: State = "blocked"
PENDING: State = "pending"
RUNNING: State = "running"
COMPLETED: State = "completed"
FAILED: State = "failed"
CANCELLED: State = "cancelled"

STATES: tuple[State, ...] = (BLOCKED, PENDING, RUNNING, COMPLETED, FAILED, CANCELLED)
LIVE: frozenset[State] = frozenset({BLOCKED, PENDING, RUNNING})
FINISHED: frozenset[State] = frozenset({COMPLETED, FAILED, CANCELLED})

Event: TypeAlias = Literal[
    "unblock", "claim", "complete", "fail", "cancel", "expire", "retry", "snooze", "give back", "bring back", "run now",
    "delete",
]  # fmt: skip

# For each event: the states that allow it, and the state after it (None: the job is deleted).
# Cancelling a running job is a request. Its worker cancels it, or the rescue after its lease expired.
TRANSITIONS: dict[Event, tuple[frozenset[State], State | None]] = {
    "unblock": (frozenset({BLOCKED}), PENDING),
    "claim": (frozenset({PENDING}), RUNNING),
    "complete": (LIVE, COMPLETED),  # a waiting job is completed from outside, by `app.complete`
    "fail": (LIVE, FAILED),
    "cancel": (LIVE, CANCELLED),
    "expire": (frozenset({PENDING, BLOCKED}), CANCELLED),
    "retry": (frozenset({RUNNING}), PENDING),
    "snooze": (frozenset({RUNNING}), PENDING),
    "give back": (frozenset({RUNNING}), PENDING),
    "bring back": (frozenset({FAILED, CANCELLED}), PENDING),
    "run now": (frozenset({PENDING}), PENDING),
    "delete": (frozenset(STATES) - {RUNNING}, None),
}


def allows(event: Event, state: State) -> bool:
    """Whether a job in this state allows this event."""
    return state in TRANSITIONS[event][0]


def why_not(event: Event, state: State) -> str:
    """The text of the error for an event that this state does not allow."""
    verb = {
        "bring back": "retried",
        "complete": "completed",
        "fail": "failed",
        "run now": "run now",
        "delete": "deleted",
        "cancel": "cancelled",
    }.get(event, event)
    hint = {
        ("delete", RUNNING): "cancel it first, and delete it when its worker has ended it",
        ("bring back", PENDING): "it is waiting already; run_now() makes it due",
        ("bring back", RUNNING): "it is running",
        ("bring back", COMPLETED): "it has done its work; enqueue a new one",
        ("run now", RUNNING): "it is running",
        ("run now", BLOCKED): "it waits for other jobs; explain() names them",
    }.get((event, state))
    return f"a {state} job cannot be {verb}" + (f": {hint}" if hint else "")

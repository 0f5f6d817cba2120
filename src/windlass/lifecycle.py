"""The states of a job and the steps between them: the only file that knows which state follows which.

    blocked ──unblock──▶ pending ──claim──▶ running ──complete──▶ completed
                            ▲                  │ ├────fail──────▶ failed ─────┐
                            │                  │ └────cancel────▶ cancelled ──┤
                            └──retry, snooze, give back, rescue──┘            │
                            └──────────────────bring back─────────────────────┘

A job that waits, blocked or pending, is cancelled by whoever asks for it (cancel), or when the time by which it had to
be started is over (expire).

`blocked`, `pending` and `running` are live; the other three are finished, and a job leaves them only by being
brought back or deleted.
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

# From which states an event may be taken, and where it leads (None: the job is gone).
# Cancelling a running job is a request: its worker, or its lease's end, carries it out.
TRANSITIONS: dict[Event, tuple[frozenset[State], State | None]] = {
    "unblock": (frozenset({BLOCKED}), PENDING),
    "claim": (frozenset({PENDING}), RUNNING),
    "complete": (LIVE, COMPLETED),  # one that waits, by someone who is no worker
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
    """Whether a job in this state can take this step."""
    return state in TRANSITIONS[event][0]


def why_not(event: Event, state: State) -> str:
    """A sentence for the person whose request the state refuses."""
    verb = {
        "bring back": "retried",
        "complete": "completed",
        "fail": "failed",
        "run now": "run now",
        "delete": "deleted",
        "cancel": "cancelled",
    }.get(event, event)
    hint = {
        ("delete", RUNNING): "cancel it first, and delete it when its worker has let go",
        ("bring back", PENDING): "it is waiting already; run_now() makes it due",
        ("bring back", RUNNING): "it is running",
        ("bring back", COMPLETED): "it has done its work; enqueue a new one",
        ("run now", RUNNING): "it is running",
        ("run now", BLOCKED): "it waits for other jobs; explain() names them",
    }.get((event, state))
    return f"a {state} job cannot be {verb}" + (f": {hint}" if hint else "")

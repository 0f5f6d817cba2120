"""What the state machine is given to do: drawn by chance, and never depending on what is there."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import msgspec
from hypothesis import strategies as st

from windlass.backoff import Backoff, Exponential, Fixed
from windlass.job import NewJob
from windlass.lifecycle import Event
from windlass.outcome import Cancel, Fail, Snooze
from windlass.policy import FOR_EVER, Policy

from .scene import new_job

QUEUES = ["one", "two"]
# Everything that is waited for ends half a minute before or after the moments that the clock can be moved to.
DELAYS = [0.0, 0.0, 0.0, 90.0, 1830.0]
EXPIRIES = [None, None, None, 90.0, 1830.0]
LEASES = [90.0, 630.0]
MOVES = [60, 600, 3600, 3 * 86_400]
KEEPS = [0, 1830, 2 * 86_400 + 30, FOR_EVER, None]
BACKOFFS: list[Backoff] = [Fixed(30), Exponential(base=50, cap=50)]
EVENTS: list[Event] = ["cancel", "bring back", "run now", "delete", "bring back", "bring back"]
OPERATIONS = {"bring back": "retry", "run now": "run_now"}
ORDER_KEYS = ["k", "l"]


def details(backoff: Backoff) -> str:
    return msgspec.json.encode(Policy(backoff=backoff).details()).decode()


def given_job(number: int, **fields: Any) -> NewJob:
    given: dict[str, Any] = {"queue": "one", "max_attempts": 2, "keep_seconds": 3630, "policy": details(Fixed(30))}
    return new_job(id=UUID(int=number), id_given=True, **given, **fields)


# Jobs whose ids their enqueuer has chosen; whoever sends such an id again means the same job.
PLAIN = given_job(1)
GIVEN = [
    PLAIN,
    given_job(2, unique_key="a", unique_until="finished"),
    given_job(3, unique_key="b", unique_until="claimed", on_conflict="raise"),
    given_job(4, unique_key="a", unique_until="forever"),
    given_job(5, order_key="k"),
    given_job(6, order_key="k", unique_key="a", unique_until="finished"),
]


# How an attempt ends.
RESULTS: dict[str, Any] = {
    "complete": "1",
    "fail": Fail("no"),
    "error": ValueError("boom"),
    "snooze": Snooze(after=90),
    "cancel": Cancel("no more"),
}
OUTCOMES = [*RESULTS, "give back", "error", "fail", "complete"]


def any_job(draw: st.DrawFn) -> NewJob:
    return new_job(
        id=uuid4(),
        queue=draw(st.sampled_from(QUEUES)),
        rank=draw(st.sampled_from([0, 0, -5, 1])),
        tenant=draw(st.sampled_from(["", "", "acme"])),
        delay_seconds=draw(st.sampled_from(DELAYS)),
        input=f'{{"number":{draw(st.integers(0, 99))}}}',
        max_attempts=draw(st.sampled_from([1, 2, 3])),
        keep_seconds=draw(st.sampled_from(KEEPS)),
        policy=details(draw(st.sampled_from(BACKOFFS))),
        expires_seconds=draw(st.sampled_from(EXPIRIES)),
    )


@st.composite
def fresh_jobs(draw: st.DrawFn) -> NewJob:
    job = any_job(draw)
    until = draw(st.sampled_from([None, None, None, None, "claimed", "finished", "forever", "window"]))
    if until is not None:
        job.unique_key, job.unique_until = draw(st.sampled_from(["a", "b"])), until
        job.on_conflict = draw(st.sampled_from(["keep", "keep", "raise", *["replace"] * 2 * (until == "claimed")]))
        job.window_seconds = 1830.0 if until == "window" else None
    return job


class Hanging(msgspec.Struct, frozen=True):
    """A job with an order key, or one that waits for others, or both. Which others, these numbers choose from what is
    there when it is sent."""

    job: NewJob
    awaited: list[int]


@st.composite
def hanging_jobs(draw: st.DrawFn) -> Hanging:
    job = any_job(draw)
    job.order_key = draw(st.sampled_from([None, None, *ORDER_KEYS]))
    most = draw(st.sampled_from([0, 0, 1, 3] if job.order_key else [0, 1, 2, 3]))
    return Hanging(job, draw(st.lists(st.integers(0, 999), min_size=min(most, 1), max_size=most)))


FRESH = st.lists(fresh_jobs() | fresh_jobs() | st.just(PLAIN), min_size=1, max_size=4)
BATCHES = FRESH | FRESH | st.sampled_from(GIVEN).map(lambda job: [job])
HANGING = st.lists(hanging_jobs(), min_size=1, max_size=4)

# Each as often as it is to be done.
ACTIONS = [
    *["settle"] * 6,
    *["claim"] * 6,
    *["enqueue"] * 3,
    *["enqueue_hanging"] * 4,
    *["go_on"] * 3,
    *["act"] * 5,
    *["wait"] * 4,
    *["enqueue_again", "complete_many", "renew", "pause_or_resume", "crash", "admit"],
]

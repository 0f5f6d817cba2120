"""What must hold of a history, whatever faults it had. The numbers are those of the reliability notes:

C1  what was acknowledged is terminal: nothing is lost
C2  what is terminal was sent: nothing comes from nowhere, and no job is there twice
C3  one accepted completion, and one effect, for each job that is completed, and none for any other
C4  the token that was accepted is the newest that anyone started with
C5  no more attempts than allowed, each started once, and nobody has failed without having run
C10 nothing runs longer than its lease and two rounds of rescue
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from windlass.lifecycle import COMPLETED, FAILED, FINISHED, PENDING

from .history import Event, Final, Kind


class Violation(NamedTuple):
    rule: str
    id: UUID | None
    what: str


class Story(NamedTuple):
    """A history, sorted."""

    by_kind: Mapping[Kind, list[Event]]
    by_job: Mapping[UUID, list[Event]]
    final: Mapping[UUID, list[Final]]
    effects: int

    def of(self, id: UUID, kind: Kind) -> list[Event]:
        return [event for event in self.by_job.get(id, ()) if event.kind == kind]


def check(events: Sequence[Event], final: Sequence[Final], effects: int) -> list[Violation]:
    """All that is wrong. `effects`: how many completions were counted, each in the transaction that made it."""
    by_kind: defaultdict[Kind, list[Event]] = defaultdict(list)
    by_job: defaultdict[UUID, list[Event]] = defaultdict(list)
    found: defaultdict[UUID, list[Final]] = defaultdict(list)
    for event in events:
        by_kind[event.kind].append(event)
        by_job[event.id].append(event)
    for job in final:
        found[job.id].append(job)
    story = Story(by_kind, by_job, found, effects)
    rules = (_lost, _unexpected, _completed_once, _effects, _newest_token, _attempts, _overdue)
    return [violation for rule in rules for violation in rule(story)]


def _lost(story: Story) -> Iterator[Violation]:
    for event in story.by_kind["acknowledged"]:
        states = [job.state for job in story.final.get(event.id, ())]
        if not states:
            yield Violation("C1", event.id, "was acknowledged and is gone")
        elif states[0] not in FINISHED:
            yield Violation("C1", event.id, f"was acknowledged and is still {states[0]}")


def _unexpected(story: Story) -> Iterator[Violation]:
    sent = {event.id for event in story.by_kind["sent"]}
    for id, jobs in story.final.items():
        if id not in sent:
            yield Violation("C2", id, "is there, and nobody sent it")
        if len(jobs) > 1:
            yield Violation("C2", id, f"is there {len(jobs)} times")


def _completed_once(story: Story) -> Iterator[Violation]:
    """A worker can be killed before it notes what it was told: there may be none, but never two."""
    for id, jobs in story.final.items():
        tokens = [event.token for event in story.of(id, "accepted") if event.state == COMPLETED]
        if len(tokens) > 1:
            yield Violation("C3", id, f"{len(tokens)} completions were accepted")
        if tokens and jobs[0].state != COMPLETED:
            yield Violation("C3", id, f"a completion was accepted, and it is {jobs[0].state}")
        if jobs[0].state == COMPLETED and not story.of(id, "ended"):
            yield Violation("C3", id, "is completed, and no handler has come to its end")


def _effects(story: Story) -> Iterator[Violation]:
    completed = sum(job.state == COMPLETED for jobs in story.final.values() for job in jobs)
    if story.effects != completed:
        yield Violation("C3", None, f"{completed} jobs are completed, and there are {story.effects} effects")


def _newest_token(story: Story) -> Iterator[Violation]:
    for id, jobs in story.final.items():
        starts = story.of(id, "started")
        if jobs[0].state != COMPLETED or not starts:
            continue
        newest = max(starts, key=lambda event: (event.attempt, event.at))
        if jobs[0].token != newest.token:
            yield Violation("C4", id, f"was completed by another than attempt {newest.attempt}, the last that started")
        for event in story.of(id, "accepted"):
            if event.state == COMPLETED and event.token != jobs[0].token:
                yield Violation("C4", id, "a completion was accepted from one who did not hold the job")


def _attempts(story: Story) -> Iterator[Violation]:
    for id, jobs in story.final.items():
        job, starts = jobs[0], story.of(id, "started")
        if job.max_attempts is not None and job.attempt > job.max_attempts:
            yield Violation("C5", id, f"{job.attempt} attempts of {job.max_attempts}")
        if starts and max(event.attempt for event in starts) > job.attempt:
            yield Violation("C5", id, "an attempt that was started is not counted")
        # What a worker that is stopped gives back is started again under the same number.
        given_back = {event.token for event in story.of(id, "accepted") if event.state == PENDING}
        for number, times in Counter(event.attempt for event in starts if event.token not in given_back).items():
            if times > 1:
                yield Violation("C5", id, f"attempt {number} was started {times} times: a death was not counted")
        if job.state == FAILED and not starts:
            yield Violation("C5", id, "has failed and never ran")


def _overdue(story: Story) -> Iterator[Violation]:
    for event in story.by_kind["overdue"]:
        yield Violation("C10", event.id, "ran on after its lease and two rounds of rescue")

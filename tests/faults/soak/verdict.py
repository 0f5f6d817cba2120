"""What must hold beside the checker's rules:

S1  a chain has all its links, each completed
S2  jobs of one order key start one after the other, in the order in which they were sent
S3  an effect is there once for each job that completed, and for no other
S4  no job fails by the death of a child that did not run it
S5  while jobs wait and the store is well, some are started
S6  a worker that was told to stop exits
S7  what no fault excuses starts once
S8  a job that has attempts left has not failed
S9  no worker ends by itself once it has begun to work
S10 an enqueue does not wait for others
"""

from __future__ import annotations

import bisect
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple
from uuid import UUID

import msgspec

from windlass.lifecycle import COMPLETED, FAILED

from ..checker import Violation, check
from ..history import Event, Final
from .scene import WAITS, Sent
from .work import EFFECTS

STALL_SECONDS = 6.0
ENQUEUE_SECONDS = 5.0
ANSWER_SECONDS = 30.0  # until a statement on a dead connection is given up
AFTER_WINDOW_SECONDS = 5.0
HARMLESS = {"slow-commit", "isolation"}  # no attempt may be lost to these


class Evidence(NamedTuple):
    events: Sequence[Event]
    rows: Sequence[tuple[Any, ...]]
    sent: Mapping[UUID, Sent]
    counted: int  # completions, as the store counts them
    entries: Sequence[str]
    windows: Sequence[tuple[float, float]]
    ended: float  # when the faults and the clients ended
    enqueues: Sequence[tuple[float, float]]  # from when to when
    faults: set[str]
    kills: int = 0  # of workers
    slowness: float = 1.0  # how many times longer things may take on this machine, as busy as it was


def judge(evidence: Evidence) -> list[Violation]:
    rows = evidence.rows
    finals = [
        Final(id=_id(row[0]), state=row[1], attempt=row[2], max_attempts=row[3], token=row[4] and _id(row[4]))
        for row in rows
    ]
    roots = {event.id for event in evidence.events if event.kind == "sent"}
    links = [Event(kind="sent", id=_id(row[0])) for row in rows if row[7] and _id(row[6]) in roots]
    found = check([*evidence.events, *links], finals, evidence.counted)
    found = _without_interrupted([violation for violation in found if not _excused(violation, evidence)], evidence)
    for rule in (_chains, _order, _effects, _children, _stalls, _started_once, _given_up, _slow_enqueues):
        found += rule(evidence)
    return found


def _id(value: Any) -> UUID:
    return value if isinstance(value, UUID) else UUID(str(value))


def _excused(violation: Violation, evidence: Evidence) -> bool:
    """A handler that is interrupted at the worker's end is given back, and spends no attempt: it starts again with that
    number. Only those that do not listen are so slow. A job that its handler's own transaction has locked, on a
    connection that is dead, cannot be rescued until the server has ended that transaction."""
    kind = violation.id and evidence.sent.get(violation.id)
    if kind and kind.kind == "slow" and violation.rule == "C10" and "half-open" in evidence.faults:
        return True
    return bool(kind and kind.kind in ("deaf", "rude") and violation.rule == "C5" and "times" in violation.what)


def _without_interrupted(found: list[Violation], evidence: Evidence) -> list[Violation]:
    """A last attempt is marked in the store before its handler starts. A worker that is killed in between leaves a job
    that has failed and never ran. A worker marks one at a time: each kill excuses one."""
    lasts = {sent.id for sent in evidence.sent.values() if sent.kind == "last"}
    interrupted = [violation for violation in found if "never ran" in violation.what and violation.id in lasts]
    return [violation for violation in found if violation not in interrupted[: evidence.kills]]


def _chains(evidence: Evidence) -> Iterator[Violation]:
    links: defaultdict[UUID, dict[int, str]] = defaultdict(dict)
    for row in evidence.rows:
        links[_id(row[6])][row[7]] = row[1]
    acknowledged = {event.id for event in evidence.events if event.kind == "acknowledged"}
    for sent in evidence.sent.values():
        if sent.kind == "link" and sent.id in acknowledged:
            states = links[sent.id]
            if sorted(states) != list(range(sent.length)) or set(states.values()) != {COMPLETED}:
                yield Violation("S1", sent.id, f"of {sent.length} links there are {dict(sorted(states.items()))}")


def _starts(evidence: Evidence) -> dict[UUID, list[float]]:
    starts: defaultdict[UUID, list[float]] = defaultdict(list)
    for event in evidence.events:
        if event.kind == "started":
            starts[event.id].append(event.at)
    return starts


def _order(evidence: Evidence) -> Iterator[Violation]:
    starts = _starts(evidence)
    lines: defaultdict[str, list[Sent]] = defaultdict(list)
    for sent in evidence.sent.values():
        if sent.line and sent.id in starts:
            lines[sent.line].append(sent)
    for line in lines.values():
        line.sort(key=lambda sent: sent.number)
        for one, following in pairwise(line):
            if max(starts[one.id]) > min(starts[following.id]):
                yield Violation("S2", following.id, f"number {following.number} started before {one.number} was over")


def _effects(evidence: Evidence) -> Iterator[Violation]:
    written = Counter(evidence.entries)
    for row in evidence.rows:
        if row[5] in EFFECTS:
            expected, seen = int(row[1] == COMPLETED), written.pop(str(_id(row[0])), 0)
            if expected != seen:
                yield Violation("S3", _id(row[0]), f"{row[5]}, {row[1]}: {seen} effects")
    for entry, count in written.items():
        yield Violation("S3", UUID(entry), f"{count} effects of a job that is not there")


def _children(evidence: Evidence) -> Iterator[Violation]:
    """Children are killed when they have started: such a death is of the job that runs there, or of none."""
    starts = {(event.id, event.attempt) for event in evidence.events if event.kind == "started"}
    for row in evidence.rows:
        if row[5] == "in_child" and row[9]:
            for attempt in msgspec.json.decode(row[9]):
                number = attempt["number"]
                if "ProcessDied" in str(attempt) and (_id(row[0]), number) not in starts:
                    yield Violation("S4", _id(row[0]), f"attempt {number} never began, and ended by a child's death")


def _stalls(evidence: Evidence) -> Iterator[Violation]:
    """Times in which nothing starts although plain jobs wait that were there at its beginning."""
    starts = _starts(evidence)
    moments = sorted(moment for times in starts.values() for moment in times)
    plain = {sent.id for sent in evidence.sent.values() if sent.kind in ("plain", "in_thread", "last")}
    came = {event.id: event.at for event in evidence.events if event.kind == "acknowledged" and event.id in plain}
    blocked = _waiting_for_others(evidence)
    for since, until in zip(moments, [*moments[1:], evidence.ended], strict=False):
        since = max([since, *(end + AFTER_WINDOW_SECONDS for begin, end in evidence.windows if begin < until)])
        if until - since < STALL_SECONDS * evidence.slowness:
            continue
        waiting = [id for id, at in came.items() if at < since and min(starts.get(id, [until])) >= until]
        waiting = [id for id in waiting if id not in blocked]
        if waiting:
            number = bisect.bisect(moments, since)
            yield Violation(
                "S5",
                waiting[0],
                f"{len(waiting)} waited for {until - since:.1f} s, after start {number}, and none began",
            )


def _waiting_for_others(evidence: Evidence) -> set[UUID]:
    return {sent.id for sent in evidence.sent.values() if sent.line or sent.length == WAITS}


def _given_up(evidence: Evidence) -> Iterator[Violation]:
    for row in evidence.rows:
        if row[1] == FAILED and (row[3] is None or row[2] < row[3]):
            yield Violation("S8", _id(row[0]), f"{row[5]} failed in attempt {row[2]} of {row[3]}: {str(row[8])[:200]}")


def _slow_enqueues(evidence: Evidence) -> Iterator[Violation]:
    for since, until in evidence.enqueues:
        begins = max([since, *(end for begin, end in evidence.windows if begin < until)])
        most = ENQUEUE_SECONDS + (ANSWER_SECONDS if "half-open" in evidence.faults else 0.0)
        if until - begins > most * evidence.slowness:
            yield Violation("S10", None, f"an enqueue took {until - begins:.1f} s")


def _started_once(evidence: Evidence) -> Iterator[Violation]:
    if not evidence.faults <= HARMLESS or evidence.slowness > 2:  # then a lease may end before it is renewed
        return
    kinds = {sent.id: sent.kind for sent in evidence.sent.values()}
    for id, times in _starts(evidence).items():
        if len(times) > 1:
            yield Violation("S7", id, f"{kinds.get(id)} started {len(times)} times, though no worker was harmed")

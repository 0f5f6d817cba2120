"""Ending attempts: one transaction, in which the jobs are read, judged, written and counted.

What is written alike goes out as one update for all; the fence (id and token as a pair) stands in each update. A job
that changes between our reading and our writing is a write conflict for the server, and all is tried again.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple, TypeAlias
from uuid import UUID, uuid4

from pymongo import DeleteMany, UpdateMany

from ...lifecycle import BLOCKED, CANCELLED, FINISHED, PENDING, RUNNING, State
from ...operation import Operation, Request, Transient
from ...outcome import Settlement, was_accepted
from ...policy import DEFAULT
from ..store import Reason, Refusal
from .documents import Document, add, round_up
from .tallies import Slot, Tallies, slot_of

WAITING = (PENDING, BLOCKED)
LONGEST_UPDATE = 2_000_000  # characters, of at most four bytes; the last one's may come on top

Member: TypeAlias = tuple[UUID, str | None]  # id and output
Accepted: TypeAlias = Literal["accepted", "accepted before"]


class Ending(NamedTuple):
    """What is written alike on all jobs of a group: all but the output."""

    token: UUID | None
    state: State
    keep_seconds: int
    error: str | None
    attempts: str | None
    run_at: datetime | None
    delay_seconds: float | None
    refund: int


class Settlements(Tallies):
    def settle(self, settlements: Sequence[Settlement]) -> Operation[list[Refusal]]:
        if not settlements:
            return []
        documents, now = yield from self.read_brief(settlement.id for settlement in settlements)
        accepted: list[tuple[Settlement, Document]] = []
        refusals: list[Refusal] = []
        for settlement in settlements:
            document = documents.get(settlement.id)
            match judge(settlement, document):
                case "accepted" if document is not None:
                    accepted.append((settlement, dict(document)))
                    foresee(settlement, document)
                case "taken by another" | "not found" | "already finished" as reason:
                    refusals.append(Refusal(settlement.id, reason, settlement.token))
        yield from self.write_endings(accepted, now)
        return refusals

    def write_endings(
        self, accepted: Iterable[tuple[Settlement, Document]], now: datetime, *, rescued: bool = False
    ) -> Operation[None]:
        """Write what was judged to be right, and count it. `rescued`: by somebody else than who holds the lease."""
        groups: defaultdict[Ending, list[Member]] = defaultdict(list)
        counts: Counter[tuple[str, str, Ending]] = Counter()
        for settlement, document in accepted:
            ending = ending_of(settlement, document)
            groups[ending].append((settlement.id, settlement.output))
            counts[document.get("queue", ""), document.get("type", ""), ending] += 1
        if not groups:
            return
        writes = [
            write_of(ending, chunk, now, rescued) for ending, members in groups.items() for chunk in in_chunks(members)
        ]
        (result,) = yield Request(self.jobs, "bulk_write", (writes,), {"ordered": False})
        if result.matched_count + result.deleted_count != sum(map(len, groups.values())):
            raise Transient("a job changed while it was being settled")
        yield from self.add_tallies(tallies_of(counts, now))


def tallies_of(counts: Mapping[tuple[str, str, Ending], int], now: datetime) -> Counter[Slot]:
    """What is finished and leaves a trace is counted."""
    tallies: Counter[Slot] = Counter()
    for (queue, type, ending), count in counts.items():
        if ending.state in FINISHED and ending.keep_seconds != 0:
            purge_at = purge_moment(ending.keep_seconds, now)
            tallies[slot_of(queue, type, ending.state, purge_at, ending.keep_seconds)] += count
    return tallies


def judge(settlement: Settlement, document: Document | None) -> Accepted | Reason:
    """What the fence says. One that was accepted before was sent again because its answer was lost."""
    if document is None:
        return "not found"
    state, token, previous_token = document["state"], document.get("token"), document.get("previous_token")
    if token == settlement.token and state in (WAITING if token is None else (RUNNING,)):
        return "accepted"
    if was_accepted(settlement, state=state, token=token, previous_token=previous_token):
        return "accepted before"
    return "already finished" if state in FINISHED else "taken by another"


def foresee(settlement: Settlement, document: Document) -> None:
    """Let the next one in the same batch find the job as this one leaves it."""
    document["state"] = final_state(settlement, document)
    if document["state"] == PENDING and settlement.token is not None:
        document["token"], document["previous_token"] = None, settlement.token


def final_state(settlement: Settlement, document: Document) -> State:
    """A job that would come back, and that somebody wants cancelled, is cancelled."""
    back = settlement.state == PENDING and document.get("cancel_requested", False)
    return CANCELLED if back else settlement.state


def ending_of(settlement: Settlement, document: Document) -> Ending:
    state = final_state(settlement, document)
    keep_seconds = document.get("keep_seconds")
    return Ending(
        settlement.token,
        state,
        DEFAULT.keep_seconds if keep_seconds is None else keep_seconds,
        settlement.error,
        settlement.attempts,
        settlement.run_at,
        settlement.delay_seconds,
        settlement.refund,
    )


def purge_moment(keep_seconds: int, now: datetime) -> datetime | None:
    """None: kept for ever, or until after the year 9999."""
    if keep_seconds < 0:
        return None
    try:
        return now + timedelta(seconds=keep_seconds)
    except OverflowError:
        return None


def in_chunks(members: Sequence[Member]) -> Iterator[list[Member]]:
    """As many as one update may carry with their outputs: the server takes 16 MB."""
    chunk: list[Member] = []
    length = 0
    for member in members:
        chunk.append(member)
        length += len(member[1] or "")
        if length > LONGEST_UPDATE:
            yield chunk
            chunk, length = [], 0
    if chunk:
        yield chunk


def write_of(ending: Ending, members: list[Member], now: datetime, rescued: bool) -> UpdateMany | DeleteMany:
    fence: Document = {"_id": {"$in": [id for id, _ in members]}, "token": ending.token}
    if ending.token is None:
        fence["state"] = {"$in": WAITING}
    if rescued:
        fence["state"] = RUNNING
    if ending.state not in FINISHED:
        return UpdateMany(fence, sent_back(ending, now, rescued))
    if ending.keep_seconds == 0:
        return DeleteMany(fence)
    output = members[0][1]
    if all(other == output for _, other in members):
        return UpdateMany(fence, finished(ending, output, now, rescued))
    return UpdateMany(fence, with_outputs(finished(ending, None, now, rescued), members))


def with_outputs(update: Document, members: list[Member]) -> list[Document]:
    """The same update with an output for each: one for all is quicker than one for each. The server looks the id up
    by a hash table, because the list is a constant."""
    ids, outputs = {"$literal": [id for id, _ in members]}, {"$literal": [output for _, output in members]}
    changes: Document = {name: {"$literal": value} for name, value in update["$set"].items()}
    changes["output"] = {"$arrayElemAt": [outputs, {"$indexOfArray": [ids, "$_id"]}]}
    return [{"$set": changes}, {"$unset": list(update["$unset"])}]


def sent_back(ending: Ending, now: datetime, rescued: bool) -> Document:
    """Pending again. The token moves aside, so that the same settlement, sent again, finds that it was accepted.

    Not so for a rescue: the late settlement of the worker that was given up must find itself refused.
    """
    changes: Document = {"state": PENDING}
    leftovers = ["token", "worker", "heard_at", "leased_until"]
    if rescued:
        leftovers.append("previous_token")
    elif ending.token is not None:
        changes["previous_token"] = ending.token
    if ending.run_at is not None:
        changes["run_at"] = round_up(ending.run_at)
    elif ending.delay_seconds is not None:
        changes["run_at"] = round_up(add(now, ending.delay_seconds))
    update = _update(changes, leftovers, error=ending.error, attempts=ending.attempts)
    if ending.refund:
        update["$inc"] = {"attempt": -ending.refund}
    return update


def finished(ending: Ending, output: str | None, now: datetime, rescued: bool) -> Document:
    """Terminal. It keeps the token, and with it the proof that this settlement was accepted; a rescuer's is new."""
    changes: Document = {"state": ending.state, "finished_at": now, "keep_seconds": ending.keep_seconds}
    leftovers = ["heard_at", "leased_until", "unique_held", "cancel_requested"]
    if rescued:
        changes["token"] = uuid4()
        leftovers.append("previous_token")
    purge_at = purge_moment(ending.keep_seconds, now)
    if purge_at is not None:
        changes["purge_at"] = purge_at
    if ending.error is None:
        leftovers.append("error")
    return _update(changes, leftovers, error=ending.error, attempts=ending.attempts, output=output)


def _update(changes: Document, leftovers: list[str], **given: Any) -> Document:
    """What was not given stays as it was."""
    changes |= {name: value for name, value in given.items() if value is not None}
    return {"$set": changes, "$unset": dict.fromkeys(leftovers, "")}

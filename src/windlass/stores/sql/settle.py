"""Settling attempts in SQL: the job ends, or is pending again."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import TypeVar
from uuid import UUID

import msgspec

from ...lifecycle import CANCELLED, FINISHED, PENDING
from ...operation import Operation
from ...outcome import Settlement
from ..store import HandedOver, Lease, Note, Refusal, may_be_handed_over
from .dependents import Dependents
from .dialect import Dialect, Part
from .status import Statuses, refusal_reason

S = TypeVar("S", Settlement, Lease, Note)
_ID = attrgetter("id.int")  # to compare integers is quicker than to compare UUIDs


class Settlements(Part):
    """Operations `settle` and `hand_over`."""

    def __init__(self, dialect: Dialect, statuses: Statuses, dependents: Dependents) -> None:
        super().__init__(dialect)
        self.statuses, self.dependents = statuses, dependents

    def settle(self, settlements: Sequence[Settlement]) -> Operation[list[Refusal]]:
        rounds = in_rounds(settlements)
        refusals = []
        for batch in rounds:
            refusals += yield from self._settle(batch, alone=len(rounds) == 1)
        return refusals

    def _settle(self, settlements: Sequence[Settlement], *, alone: bool) -> Operation[list[Refusal]]:
        ending = [settlement for settlement in settlements if settlement.state in FINISHED]
        returning = [settlement for settlement in settlements if settlement.state == PENDING]
        refused: set[UUID] = set()
        if ending:
            refused |= yield from self.dependents.end(ending, alone=alone and not returning)
        if returning:
            refused |= yield from self._send_back(returning)
        if not refused:
            return []
        left = [one for one in settlements if one.id in refused]
        return (yield from self._explain(left, alone=alone and not returning))

    def _send_back(self, settlements: Sequence[Settlement]) -> Operation[set[UUID]]:
        rows = yield self.many("release", settlements)
        released = {self.rows.to_uuid(row[0]) for row in rows}
        left = [settlement for settlement in settlements if settlement.id not in released]
        if not left:
            return set()
        # A job that someone asked to cancel does not become pending again: it ends here.
        statuses = yield from self.statuses.read([settlement.id for settlement in left])
        cancelled = [
            msgspec.structs.replace(settlement, state=CANCELLED)
            for settlement in left
            if (status := statuses.get(settlement.id)) and status.cancel_requested and status.token == settlement.token
        ]
        refused = (yield from self.dependents.end(cancelled, alone=False)) if cancelled else set()
        return refused | {one.id for one in left} - {one.id for one in cancelled}

    def _explain(self, settlements: Sequence[Settlement], *, alone: bool) -> Operation[list[Refusal]]:
        """The reasons. A settlement that was sent before and accepted is found again, and is no refusal."""
        statuses = yield from self.statuses.read([settlement.id for settlement in settlements], alone=alone)
        refusals = []
        for settlement in settlements:
            status = statuses.get(settlement.id)
            if status is None or not status.has_accepted(settlement):
                refusals.append(Refusal(settlement.id, refusal_reason(status), settlement.token))
        return refusals

    def hand_over(self, settlement: Settlement, token: UUID, worker: str) -> Operation[HandedOver]:
        job = yield from self.dialect.hand_over(settlement, token, worker)
        if job is not None:
            return HandedOver([], job)
        refusals = yield from self._settle([settlement], alone=False)
        if refusals or settlement.continues is None or not may_be_handed_over(settlement.continues):
            return HandedOver(refusals)
        rows = yield self.statement("take", id=settlement.continues.id, token=token, worker=worker)
        return HandedOver([], self.rows.job(rows[0]) if rows else None)


def in_rounds(items: Sequence[S]) -> list[list[S]]:
    """In id order, and in rounds in which no job is named twice: a worker may settle two attempts of one job."""
    left = sorted(items, key=_ID)
    if len(set(map(_ID, left))) == len(left):
        return [left] if left else []
    rounds: list[list[S]] = []
    while left:
        first: dict[int, S] = {}
        for item in left:
            first.setdefault(item.id.int, item)
        rounds.append(list(first.values()))
        left = [item for item in left if first[item.id.int] is not item] if len(first) < len(left) else []
    return rounds

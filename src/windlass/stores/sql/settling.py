"""Ending attempts in SQL, beginning and prolonging them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar
from uuid import UUID

import msgspec

from ...lifecycle import CANCELLED, FINISHED, PENDING, RUNNING
from ...operation import Operation, Statement
from ...outcome import Settlement
from ..store import HandedOver, Lease, Note, Refusal, Renewal, may_be_handed_over
from .entangling import Entangling
from .places import Place, reason

S = TypeVar("S", Settlement, Lease, Note)

BEGIN_SECONDS = (
    3.0  # for the mark of a last attempt: the worker's other last attempts wait for it, and it is sent again
)


class Settling(Entangling):
    """Part of a store: `settle`, `begin`, `renew` and `note`."""

    def many(self, name: str, rows: Sequence[msgspec.Struct], *, alone: bool = False) -> Statement:
        raise NotImplementedError

    def settle(self, settlements: Sequence[Settlement]) -> Operation[list[Refusal]]:
        rounds = _rounds(settlements)
        refusals = []
        for batch in rounds:
            refusals += yield from self._settle(batch, alone=len(rounds) == 1)
        return refusals

    def _settle(self, settlements: Sequence[Settlement], *, alone: bool) -> Operation[list[Refusal]]:
        ending = [settlement for settlement in settlements if settlement.state in FINISHED]
        returning = [settlement for settlement in settlements if settlement.state == PENDING]
        refused: set[UUID] = set()
        if ending:
            refused |= yield from self.end(ending, alone=alone and not returning)
        if returning:
            refused |= yield from self._send_back(returning)
        if not refused:
            return []
        left = [one for one in settlements if one.id in refused]
        return (yield from self._why_refused(left, alone=alone and not returning))

    def _send_back(self, settlements: Sequence[Settlement]) -> Operation[set[UUID]]:
        rows = yield self.many("release", settlements)
        released = {self.rows.to_uuid(row[0]) for row in rows}
        left = [settlement for settlement in settlements if settlement.id not in released]
        if not left:
            return set()
        # Someone asked to cancel what was to come back: it ends here.
        places = yield from self.whereabouts([settlement.id for settlement in left])
        cancelled = [
            msgspec.structs.replace(settlement, state=CANCELLED)
            for settlement in left
            if (place := places.get(settlement.id)) and place.cancel_requested and place.token == settlement.token
        ]
        refused = (yield from self.end(cancelled, alone=False)) if cancelled else set()
        return refused | {one.id for one in left} - {one.id for one in cancelled}

    def _why_refused(self, settlements: Sequence[Settlement], *, alone: bool) -> Operation[list[Refusal]]:
        """The reasons; a settlement that was sent before and accepted is found again, and has none."""
        places = yield from self.whereabouts([settlement.id for settlement in settlements], alone=alone)
        refusals = []
        for settlement in settlements:
            place = places.get(settlement.id)
            if place is None or not place.accepted(settlement):
                refusals.append(Refusal(settlement.id, reason(place), settlement.token))
        return refusals

    def hand_over(self, settlement: Settlement, token: UUID, worker: str) -> Operation[HandedOver]:
        refusals = yield from self._settle([settlement], alone=False)
        if refusals or settlement.continues is None or not may_be_handed_over(settlement.continues):
            return HandedOver(refusals)
        rows = yield self.statement("take", id=settlement.continues.id, token=token, worker=worker)
        return HandedOver([], self.rows.job(rows[0]) if rows else None)

    def begin(self, leases: Sequence[Lease]) -> Operation[list[Refusal]]:
        refusals: list[Refusal] = []
        for batch in _rounds(leases):
            rows = yield replace(self.many("begin", batch, alone=True), seconds=BEGIN_SECONDS)
            begun = {self.rows.to_uuid(row[0]) for row in rows}
            left = [lease for lease in batch if lease.id not in begun]
            places = (yield from self.whereabouts([lease.id for lease in left], alone=True)) if left else {}
            for lease in left:
                place = places.get(lease.id)
                locked = place is not None and place.token == lease.token and place.state not in FINISHED
                refusals.append(Refusal(lease.id, "locked" if locked else reason(place), lease.token))
        return refusals

    def note(self, notes: Sequence[Note]) -> Operation[None]:
        for batch in _rounds(notes):
            yield self.many("note", batch, alone=True)

    def renew(self, leases: Sequence[Lease]) -> Operation[list[Renewal]]:
        renewals: dict[tuple[UUID, UUID], Renewal] = {}
        for batch in _rounds(leases):
            renewals |= yield from self._renew(batch)
        return [renewals[lease.id, lease.token] for lease in leases]

    def _renew(self, leases: Sequence[Lease]) -> Operation[dict[tuple[UUID, UUID], Renewal]]:
        rows = yield self.many("renew", leases, alone=True)
        renewed = {
            (id := self.rows.to_uuid(row[0])): Renewal(id, self.rows.to_datetime(row[1]), bool(row[2])) for row in rows
        }
        left = [lease for lease in leases if lease.id not in renewed]
        if left:
            places = yield from self.whereabouts([lease.id for lease in left], alone=True)
            renewed |= {lease.id: self._not_renewed(lease, places.get(lease.id)) for lease in left}
        return {(lease.id, lease.token): renewed[lease.id] for lease in leases}

    def _not_renewed(self, lease: Lease, place: Place | None) -> Renewal:
        """It is lost; or it was passed by, since another transaction has locked the row."""
        if place is None or place.state != RUNNING or place.token != lease.token:
            return Renewal(lease.id, None, reason=reason(place))
        return Renewal(lease.id, self.rows.to_datetime(place.leased_until), place.cancel_requested, locked=True)


def _rounds(items: Sequence[S]) -> list[list[S]]:
    """In id order, and in rounds in which no job comes twice: a worker may speak for two attempts of one job."""
    left = sorted(items, key=lambda item: item.id.int)
    if len({item.id.int for item in left}) == len(left):
        return [left] if left else []
    rounds: list[list[S]] = []
    while left:
        first: dict[int, S] = {}
        for item in left:
            first.setdefault(item.id.int, item)
        rounds.append(list(first.values()))
        left = [item for item in left if first[item.id.int] is not item] if len(first) < len(left) else []
    return rounds

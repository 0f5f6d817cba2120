"""Where a job is, and who has it: what is asked when a write was refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar
from uuid import UUID

import msgspec

from ...lifecycle import FINISHED, State
from ...operation import Operation, Statement
from ...outcome import Settlement, was_accepted
from ..store import Reason
from .rows import RowReader


class Place(msgspec.Struct, frozen=True):
    state: State
    queue: str
    token: UUID | None
    previous_token: UUID | None
    cancel_requested: bool
    linked: bool
    lane: int | None
    tenant: str
    order_key: str | None
    chain_id: UUID
    type: str
    leased_until: Any = None

    @property
    def in_lane(self) -> tuple[str, str]:
        return (self.tenant, self.order_key or "")

    def accepted(self, settlement: Settlement) -> bool:
        """Whether this very settlement was written before, and only its answer was lost."""
        return was_accepted(settlement, state=self.state, token=self.token, previous_token=self.previous_token)


def reason(place: Place | None) -> Reason:
    if place is None:
        return "not found"
    return "already finished" if place.state in FINISHED else "taken by another"


class Places:
    """Part of a store."""

    rows: ClassVar[RowReader]

    def array(self, values: Sequence[Any]) -> Any:
        raise NotImplementedError

    def statement(self, name: str, /, *, alone: bool = False, **parameters: Any) -> Statement:
        raise NotImplementedError

    def whereabouts(self, ids: Sequence[UUID], *, alone: bool = False) -> Operation[dict[UUID, Place]]:
        rows = yield self.statement("whereabouts", alone=alone, ids=self.array(ids))
        to_uuid = self.rows.to_uuid
        return {
            to_uuid(id): Place(
                state, queue, token and to_uuid(token), previous and to_uuid(previous), bool(asked), bool(linked), lane,
                tenant, order_key, to_uuid(chain), type, until,
            )
            for id, state, queue, token, previous, asked, linked, lane, tenant, order_key, chain, type, until in rows
        }  # fmt: skip

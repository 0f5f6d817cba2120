"""The status of a job: the state that it is in, and the claim that it belongs to. Read after a refused write."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import msgspec

from ...lifecycle import FINISHED, State
from ...operation import Operation
from ...outcome import Settlement, was_accepted
from ..store import Reason
from .dialect import OrderKey, Part


class JobStatus(msgspec.Struct, frozen=True):
    """`linked`: other jobs wait for its chain. `lane`: its place among the jobs of its order key."""

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
    def full_order_key(self) -> OrderKey:
        return (self.tenant, self.order_key or "")

    def has_accepted(self, settlement: Settlement) -> bool:
        """Whether this very settlement was written before, and only its answer was lost."""
        return was_accepted(settlement, state=self.state, token=self.token, previous_token=self.previous_token)


def refusal_reason(status: JobStatus | None) -> Reason:
    if status is None:
        return "not found"
    return "already finished" if status.state in FINISHED else "taken by another"


class Statuses(Part):
    def read(self, ids: Sequence[UUID], *, alone: bool = False) -> Operation[dict[UUID, JobStatus]]:
        """The status of each of these jobs that exists."""
        rows = yield self.statement("status", alone=alone, ids=self.array(ids))
        to_uuid = self.rows.to_uuid
        return {
            to_uuid(id): JobStatus(
                state, queue, token and to_uuid(token), previous and to_uuid(previous), bool(asked), bool(linked), lane,
                tenant, order_key, to_uuid(chain), type, until,
            )
            for id, state, queue, token, previous, asked, linked, lane, tenant, order_key, chain, type, until in rows
        }  # fmt: skip

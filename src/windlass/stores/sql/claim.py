"""Claims in SQL."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import msgspec

from ...job import Job
from ...operation import Operation, Row, Rows, Statement
from ...policy import Policy
from ..store import ClaimRequest
from .dialect import Dialect, Part

START = {"after_rank": -32768, "after_run_at": datetime(1, 1, 1, tzinfo=UTC), "after_id": UUID(int=0)}


class Claims(Part):
    """Operations `claim` and `adopt`."""

    def __init__(self, dialect: Dialect) -> None:
        super().__init__(dialect)
        self._encoded: tuple[Mapping[str, Policy], Policy, str] = ({}, Policy(), "")

    def claim(self, request: ClaimRequest) -> Operation[list[Job]]:
        parameters = self._parameters(request)
        parts = self.dialect.claim_parts(request)
        rows = yield self._variant("claim", parameters, parts)
        if not rows and request.prefetch:
            found = yield self._variant("look_past", parameters)
            if found:
                rows = yield self._variant("claim", parameters | self._just_before(found[0]), parts)
        return self.rows.claimed(self._in_order(rows), request.queue, request.worker)

    def _parameters(self, request: ClaimRequest) -> dict[str, Any]:
        parameters: dict[str, Any] = {
            "queue": request.queue,
            "limit": request.limit,
            "token": request.token,
            "worker": request.worker,
            "lease_seconds": request.lease_seconds,
            "policies": self._policies_json(request),
            "max_bytes": request.max_bytes,
            "prefetch": request.prefetch,
            "begun": request.begun,
            **START,
        }
        if request.after is not None:
            after = request.after
            parameters |= {"after_rank": after.rank, "after_run_at": after.run_at, "after_id": after.id}
        if request.types is not None:
            parameters["types"] = self.array(request.types)
        if request.order_key is not None:
            parameters["order_key"] = request.order_key
            if request.tenant is not None:
                parameters["tenant"] = request.tenant
        return parameters

    def _policies_json(self, request: ClaimRequest) -> str:
        """The policies of all tasks. They are cached: an app passes the same object each time, until it gets a new task
        and makes a new object."""
        policies, default, encoded = self._encoded
        if request.policies is not policies or request.default_policy is not default:
            by_type = {type: policy.to_json() for type, policy in request.policies.items()}
            by_type[""] = request.default_policy.to_json()
            encoded = msgspec.json.encode(by_type).decode()
            self._encoded = request.policies, request.default_policy, encoded
        return encoded

    def _variant(self, name: str, parameters: dict[str, Any], parts: Mapping[str, str] | None = None) -> Statement:
        """The query with the conditions that these parameters ask for."""
        typed = "{typed}" if "types" in parameters else ""
        keyed = "AND j.lane = 2 AND j.order_key = :order_key" if "order_key" in parameters else ""
        keyed += " AND j.tenant = :tenant" if "tenant" in parameters else ""
        query = self.queries.library.variant(name, of_types=f"{typed} {keyed}", **(parts or {}))
        return Statement(query, parameters, alone=True)

    def _just_before(self, row: Row) -> dict[str, Any]:
        """The position from which a claim meets this job first."""
        rank, run_at, id = row
        moment, before = self.rows.to_datetime(run_at), UUID(int=self.rows.to_uuid(id).int - 1)
        return {"after_rank": rank, "after_run_at": moment, "after_id": before}

    def adopt(self, token: UUID) -> Operation[list[Job]]:
        rows = yield self.statement("adopt", alone=True, token=token)
        return [self.rows.job(row) for row in rows]

    def _in_order(self, rows: Rows) -> Rows:
        """Claimed rows by rank, time and id, since RETURNING has no order. Usually they are in this order already."""
        try:
            return sorted(rows, key=self.rows.claim_order)
        except TypeError:
            return rows  # a row that someone wrote by hand must not stop the others

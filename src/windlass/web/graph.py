"""The graph of chains over HTTP: what a job waits for, what waits for it, and the chains that there are."""

from __future__ import annotations

from http import HTTPStatus
from typing import TypedDict
from uuid import UUID

import msgspec

from ..errors import InvalidInput
from ..insight import BlockerFacts, ChainFacts, JobFacts, blocker_facts, chain_facts, job_facts
from ..lifecycle import State
from .endpoints import Asked, endpoint
from .jobs import Cursor, JobPage, Limit, Name, PageQuery
from .problems import Problem


class ChainQuery(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    state: State | None = None
    type: Name | None = None
    queue: Name | None = None
    tenant: Name | None = None
    limit: Limit = 20
    cursor: Cursor | None = None


class Blockers(TypedDict):
    """What a job waits, or has waited, for, in the order that was given."""

    blockers: list[BlockerFacts]


class ChainPage(TypedDict):
    """Chains, newest first; `next_cursor` asks for more, and is null at the end."""

    chains: list[ChainFacts]
    next_cursor: str | None


@endpoint("GET", "/v1/jobs/{id}/blockers", "read")
async def list_blockers(asked: Asked, id: UUID) -> Blockers:
    """The chains that a job waits, or has waited, for."""
    await asked.own(id)
    facts = [blocker_facts(one, asked.access.tenant) for one in await asked.app.ablockers(id)]
    return {"blockers": facts}


@endpoint("GET", "/v1/jobs/{id}/dependents", "read")
async def list_dependents(asked: Asked, id: UUID, query: PageQuery) -> JobPage:
    """The jobs that wait, or have waited, for a job's chain, oldest first."""
    chain, own = (await asked.job(id)).chain_id, asked.access.tenant
    after = _read_cursor(query.cursor)
    page = await asked.app.arun_operation(lambda: asked.app.store.dependents(chain, query.limit + 1, after))
    jobs: list[JobFacts] = [job_facts(job) for job in page[: query.limit] if own in (None, job.tenant)]
    return {"jobs": jobs, "next_cursor": page[query.limit - 1].id.hex if len(page) > query.limit else None}


@endpoint("GET", "/v1/chains", "read")
async def list_chains(asked: Asked, query: ChainQuery) -> ChainPage:
    """A page of chains, newest first. Type, queue and tenant are those of the first job, the state is that of the
    newest."""
    own = asked.access.tenant
    if own is not None and query.tenant not in (None, own):
        raise Problem(HTTPStatus.FORBIDDEN, f"the token is not of tenant {query.tenant!r}")
    page = await asked.app.achains(
        type=query.type, state=query.state, queue=query.queue, tenant=own or query.tenant, limit=query.limit,
        cursor=query.cursor,
    )  # fmt: skip
    return {"chains": [chain_facts(one, own) for one in page], "next_cursor": page.next_cursor}


def _read_cursor(cursor: str | None) -> UUID | None:
    try:
        return None if cursor is None else UUID(cursor)
    except ValueError:
        raise InvalidInput(f"cursor {cursor!r} is not one that a page of this list has given") from None

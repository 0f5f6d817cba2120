"""The graph of chains over HTTP: a job's blockers, its dependents, and the list of chains."""

from __future__ import annotations

from http import HTTPStatus
from typing import TypedDict
from uuid import UUID

import msgspec

from ..errors import InvalidInput
from ..insight import BlockerFacts, ChainFacts, JobFacts, blocker_facts, chain_facts, job_facts
from ..lifecycle import State
from .endpoints import Context, endpoint
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
    """The blockers of a job, in the order of `after`."""

    blockers: list[BlockerFacts]


class ChainPage(TypedDict):
    """Chains, newest first. `next_cursor` is the cursor of the next page, null at the end."""

    chains: list[ChainFacts]
    next_cursor: str | None


@endpoint("GET", "/v1/jobs/{id}/blockers", "read")
async def list_blockers(context: Context, id: UUID) -> Blockers:
    """List the chains that a job waits for, or has waited for."""
    await context.check_job(id)
    facts = [blocker_facts(one, context.access.tenant) for one in await context.app.ablockers(id)]
    return {"blockers": facts}


@endpoint("GET", "/v1/jobs/{id}/dependents", "read")
async def list_dependents(context: Context, id: UUID, query: PageQuery) -> JobPage:
    """List the jobs that wait, or have waited, for a job's chain, oldest first."""
    chain, own = (await context.job(id)).chain_id, context.access.tenant
    after = _read_cursor(query.cursor)
    page = await context.app.arun_operation(lambda: context.app.store.dependents(chain, query.limit + 1, after))
    jobs: list[JobFacts] = [job_facts(job) for job in page[: query.limit] if own in (None, job.tenant)]
    return {"jobs": jobs, "next_cursor": page[query.limit - 1].id.hex if len(page) > query.limit else None}


@endpoint("GET", "/v1/chains", "read")
async def list_chains(context: Context, query: ChainQuery) -> ChainPage:
    """List chains, newest first. Type, queue and tenant are those of the first job. The state is that of the newest
    job."""
    own = context.access.tenant
    if own is not None and query.tenant not in (None, own):
        raise Problem(HTTPStatus.FORBIDDEN, f"the token is not of tenant {query.tenant!r}")
    page = await context.app.achains(
        type=query.type, state=query.state, queue=query.queue, tenant=own or query.tenant, limit=query.limit,
        cursor=query.cursor,
    )  # fmt: skip
    return {"chains": [chain_facts(one, own) for one in page], "next_cursor": page.next_cursor}


def _read_cursor(cursor: str | None) -> UUID | None:
    try:
        return None if cursor is None else UUID(cursor)
    except ValueError:
        raise InvalidInput(f"cursor {cursor!r} is not valid; give the next_cursor of a page of this list") from None

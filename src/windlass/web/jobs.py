"""Jobs and chains over HTTP: list, get, enqueue, act, explain."""

from __future__ import annotations

import re
from datetime import datetime
from http import HTTPStatus
from typing import Annotated, Any, TypedDict
from uuid import UUID

import msgspec
from msgspec import UNSET, Meta, UnsetType

from ..app import Windlass
from ..errors import InvalidInput
from ..insight import JobDetails, JobFacts, job_details, job_facts
from ..job import IfFailed, Job
from ..lifecycle import State
from ..unique import OnConflict, Scope, Unique
from .endpoints import Context, endpoint, read_json, read_object
from .problems import Problem

Name = Annotated[str, Meta(min_length=1, max_length=200)]
Key = Annotated[str, Meta(min_length=1, max_length=500)]
Moment = Annotated[datetime, Meta(tz=True, description="with a timezone")]
Length = Annotated[
    float | Annotated[str, Meta(max_length=100)], Meta(description='seconds, or a duration like "10m" or "PT10M"')
]
FORMS = [{"title": "a duration", "examples": ["10m", "PT10M"]}, {"title": "a moment", "format": "date-time"}]
LengthOrMoment = Annotated[  # one type of text, because msgspec cannot tell the two forms apart
    float | Annotated[str, Meta(max_length=100, extra_json_schema={"anyOf": FORMS})],
    Meta(description='seconds, a duration like "10m" or "PT10M", or a moment with a timezone'),
]
Limit = Annotated[int, Meta(ge=1, le=1000)]
Cursor = Annotated[str, Meta(max_length=100, description="`next_cursor` of the page before")]

BEGINS_WITH_A_DATE = re.compile(r"[0-9]+-")  # no duration begins like this


class JobQuery(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    status: State | None = None
    state: Annotated[State, Meta(description="the same as `status`")] | None = None
    type: Name | None = None
    queue: Name | None = None
    tenant: Name | None = None
    since: Annotated[Moment, Meta(description="finished since; of live jobs, created since")] | None = None
    limit: Limit = 20
    cursor: Cursor | None = None


class PageQuery(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    limit: Limit = 100
    cursor: Cursor | None = None


class DeletionQuery(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    cascade: Annotated[
        bool, Meta(description="also delete the chains that it waited for, if no other job waits for them")
    ] = False


class UniqueKey(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """One job for this key: until the job is claimed or finished, for ever, or for a duration. The key counts for the
    job's type or, with the scope `app`, for all types."""

    key: Key
    until: Length = "finished"
    on_conflict: OnConflict = "keep"
    max_wait: Length | None = None
    scope: Scope = "type"


class JobRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """A job to enqueue. `input` has the handler's arguments by name."""

    type: Name
    input: Annotated[msgspec.Raw, Meta(extra_json_schema={"type": "object"})] = msgspec.field(
        default_factory=lambda: msgspec.Raw(b"{}")
    )
    id: UUID | UnsetType = UNSET
    queue: Name | UnsetType = UNSET
    tenant: Name | UnsetType = UNSET
    priority: Annotated[int, Meta(ge=-100, le=100)] | UnsetType = UNSET
    run_at: Moment | UnsetType = UNSET
    delay: Length | UnsetType = UNSET
    labels: Annotated[dict[str, str], Meta(max_length=100)] | UnsetType = UNSET
    unique: Key | UniqueKey | UnsetType = UNSET
    order_key: Key | UnsetType = UNSET
    after: Annotated[list[UUID], Meta(max_length=10_000)] | UnsetType = UNSET
    if_failed: IfFailed | UnsetType = UNSET
    max_attempts: Annotated[int, Meta(ge=1, le=1000000)] | UnsetType | None = UNSET
    backoff: Length | UnsetType = UNSET
    timeout: Length | UnsetType = UNSET
    lease: Length | UnsetType = UNSET
    expires: LengthOrMoment | UnsetType = UNSET
    keep: Length | UnsetType | None = UNSET

    def options(self) -> dict[str, Any]:
        names = self.__struct_fields__[2:]  # all fields but the type and the input
        given = {name: value for name in names if (value := getattr(self, name)) is not UNSET}
        unique = given.get("unique")
        if isinstance(unique, UniqueKey):
            given["unique"] = Unique(unique.key, unique.until, unique.on_conflict, unique.max_wait, unique.scope)
        if isinstance(self.expires, str) and BEGINS_WITH_A_DATE.match(self.expires):
            given["expires"] = _read_moment("expires", self.expires)
        return given


def _read_moment(name: str, text: str) -> datetime:
    try:
        moment: datetime = msgspec.convert(text, Moment)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"{name}: {error}") from error
    return moment


class Completion(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The output of the job."""

    output: Annotated[msgspec.Raw, Meta(extra_json_schema={})] = msgspec.field(
        default_factory=lambda: msgspec.Raw(b"null")
    )


class JobPage(TypedDict):
    """Jobs, newest first. `next_cursor` is the cursor of the next page, null at the end."""

    jobs: list[JobFacts]
    next_cursor: str | None


class EnqueuedJob(JobDetails):
    """The job. `created` is false if it, or another job with its unique key, existed already."""

    created: bool


class Chain(TypedDict):
    """A chain: the state and output of its newest job, and its jobs, newest first."""

    id: str
    state: str
    output: Any
    jobs: list[JobFacts]
    next_cursor: str | None


class Explanation(TypedDict):
    id: str
    explanation: str


@endpoint("GET", "/v1/jobs", "read")
async def list_jobs(context: Context, query: JobQuery) -> JobPage:
    """List jobs with their errors, newest first. Failed or cancelled jobs are in the order in which they ended."""
    own = context.access.tenant
    if own is not None and query.tenant not in (None, own):
        raise Problem(HTTPStatus.FORBIDDEN, f"the token is not of tenant {query.tenant!r}")
    if query.status and query.state not in (None, query.status):
        raise Problem(HTTPStatus.UNPROCESSABLE_ENTITY, "`status` and `state` are the same, and differ here")
    page = await context.app.alist(
        state=query.status or query.state, type=query.type, queue=query.queue, tenant=own or query.tenant,
        since=query.since, limit=query.limit, cursor=query.cursor,
    )  # fmt: skip
    return {"jobs": [job_facts(job) for job in page], "next_cursor": page.next_cursor}


@endpoint("POST", "/v1/jobs", "operate", status=201)
async def enqueue_job(context: Context, body: JobRequest) -> EnqueuedJob:
    """Enqueue a job. If a job with this `id` or this unique key exists already, the answer is 200 with that job."""
    options, own = body.options(), context.access.tenant
    if own is not None and options.setdefault("tenant", own) != own:
        raise Problem(HTTPStatus.FORBIDDEN, f"the token is not of tenant {body.tenant!r}")
    await context.check_jobs(options.get("after", ()))
    arguments = read_object(bytes(body.input), "input")
    job = await context.app.aenqueue(body.type, arguments, **options)
    if not job.created:
        context.status = HTTPStatus.OK
        if own is not None and job.tenant != own:  # the caller chose the id of another tenant's job
            raise Problem(HTTPStatus.CONFLICT, f"there is a job {job.id} already; choose another id")
    return {**job_details(job), "created": job.created}


@endpoint("GET", "/v1/jobs/{id}", "read")
async def get_job(context: Context, id: UUID) -> JobDetails:
    """Show all details of one job."""
    return job_details(await context.job(id))


@endpoint("DELETE", "/v1/jobs/{id}", "admin", status=204)
async def delete_job(context: Context, id: UUID, query: DeletionQuery) -> None:
    """Delete a job with its chain. Refused while it runs, or while another chain waits for it."""
    if context.access.tenant is not None:
        if query.cascade:
            detail = "cascade may delete jobs of other tenants, and the token belongs to one; delete without cascade"
            raise Problem(HTTPStatus.FORBIDDEN, detail)
        chain = (await context.job(id)).chain_id
        if any(job.tenant != context.access.tenant for job in await context.app.alist(chain=chain, limit=1000)):
            detail = "this chain has jobs of other tenants; use a token without a tenant"
            raise Problem(HTTPStatus.FORBIDDEN, detail)
    await context.app.adelete(id, cascade=query.cascade)


@endpoint("POST", "/v1/jobs/{id}/retry", "operate")
async def retry_job(context: Context, id: UUID) -> JobDetails:
    """Retry a failed or cancelled job now."""
    await context.check_job(id)
    return job_details(await context.app.aretry(id))


@endpoint("POST", "/v1/jobs/{id}/cancel", "operate")
async def cancel_job(context: Context, id: UUID) -> JobDetails:
    """Cancel a job. Its worker ends a running one."""
    await context.check_job(id)
    return job_details(await context.app.acancel(id))


@endpoint("POST", "/v1/jobs/{id}/run-now", "operate")
async def run_job_now(context: Context, id: UUID) -> JobDetails:
    """Make a pending job due now."""
    await context.check_job(id)
    return job_details(await context.app.arun_now(id))


@endpoint("POST", "/v1/jobs/{id}/complete", "operate")
async def complete_job(context: Context, id: UUID, body: Completion) -> JobDetails:
    """Complete a job without a worker, as after an approval or a callback."""
    await context.check_job(id)
    return job_details(await context.app.acomplete(id, read_json(bytes(body.output))))


@endpoint("GET", "/v1/jobs/{id}/explain", "read")
async def explain_job(context: Context, id: UUID) -> Explanation:
    """Explain why a job is not running."""
    await context.check_job(id)
    return {"id": str(id), "explanation": await context.app.aexplain(id)}


@endpoint("GET", "/v1/chains/{id}", "read")
async def get_chain(context: Context, id: UUID, query: PageQuery) -> Chain:
    """Show a chain, by the id of any of its jobs."""
    chain = (await context.job(id)).chain_id
    page = await context.app.alist(chain=chain, tenant=context.access.tenant, limit=query.limit, cursor=query.cursor)
    newest = await _newest(context.app, chain)
    return {
        "id": str(chain),
        "state": newest.state,
        "output": newest.output if context.access.tenant in (None, newest.tenant) else None,
        "jobs": [job_facts(job) for job in sorted(page, key=lambda job: -job.chain_index)],
        "next_cursor": page.next_cursor,
    }


async def _newest(app: Windlass, chain: UUID) -> Job:
    """The last job of the chain. The ids do not show which it is, because the clocks of the machines that make them
    differ."""
    ends = await app.arun_operation(lambda: app.store.ends([chain]))
    return ends[0] if ends else max(await app.alist(chain=chain, limit=100), key=lambda job: job.chain_index)

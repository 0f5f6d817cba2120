"""Queues, workers, schedules, figures and health over HTTP."""

from __future__ import annotations

from typing import TypedDict

from ..insight import (
    JobFacts,
    QueueFacts,
    ScheduleFacts,
    Stats,
    WorkerFacts,
    job_facts,
    queue_facts,
    schedule_facts,
    stat_facts,
    worker_facts,
)
from .endpoints import Context, endpoint


class Queues(TypedDict):
    queues: list[QueueFacts]


class Workers(TypedDict):
    workers: list[WorkerFacts]


class Schedules(TypedDict):
    schedules: list[ScheduleFacts]


class QueueState(TypedDict):
    name: str
    paused: bool


class ScheduleState(TypedDict):
    name: str
    paused: bool


class Health(TypedDict):
    status: str


@endpoint("GET", "/v1/queues", "read", across_tenants=True)
async def list_queues(context: Context) -> Queues:
    """List the queues, with their jobs by state."""
    return {"queues": queue_facts(await context.app.acounts(), await context.app.apaused())}


@endpoint("POST", "/v1/queues/{name:path}/pause", "operate", across_tenants=True)
async def pause_queue(context: Context, name: str) -> QueueState:
    """Pause a queue: no worker claims its jobs until it is resumed. Running jobs continue."""
    await context.app.apause(name)
    return {"name": name, "paused": True}


@endpoint("POST", "/v1/queues/{name:path}/resume", "operate", across_tenants=True)
async def resume_queue(context: Context, name: str) -> QueueState:
    """Resume a queue: workers claim its jobs again."""
    await context.app.aresume(name)
    return {"name": name, "paused": False}


@endpoint("GET", "/v1/workers", "read", across_tenants=True)
async def list_workers(context: Context) -> Workers:
    """List the workers that are alive."""
    return {"workers": worker_facts(await context.app.aworkers())}


@endpoint("GET", "/v1/schedules", "read", across_tenants=True)
async def list_schedules(context: Context) -> Schedules:
    """List the schedules, with their next five runs."""
    return {"schedules": [schedule_facts(one, one.next_runs) for one in await context.app.aschedules()]}


@endpoint("POST", "/v1/schedules/{name:path}/pause", "operate", across_tenants=True)
async def pause_schedule(context: Context, name: str) -> ScheduleState:
    """Pause a schedule: it makes no jobs until it is resumed."""
    await context.app.apause_schedule(name)
    return {"name": name, "paused": True}


@endpoint("POST", "/v1/schedules/{name:path}/resume", "operate", across_tenants=True)
async def resume_schedule(context: Context, name: str) -> ScheduleState:
    """Resume a schedule with its next tick from now."""
    await context.app.aresume_schedule(name)
    return {"name": name, "paused": False}


@endpoint("POST", "/v1/schedules/{name:path}/run", "operate", across_tenants=True, status=201)
async def run_schedule(context: Context, name: str) -> JobFacts:
    """Enqueue a schedule's call now, beside its ticks."""
    return job_facts(await context.app.arun_schedule(name))


@endpoint("GET", "/v1/stats", "read", across_tenants=True)
async def get_stats(context: Context) -> Stats:
    """Count the jobs by state, and by type and state."""
    return stat_facts(await context.app.acounts())


@endpoint("GET", "/healthz", "read")
async def get_health(context: Context) -> Health:
    """Check the database: 200 if it answers, else 503."""
    await context.app.arun_operation(context.app.store.now)
    return {"status": "ok"}

"""Queues, workers, schedules, figures and health over HTTP."""

from __future__ import annotations

from typing import TypedDict

from ..insight import (
    QueueFacts,
    ScheduleFacts,
    Stats,
    WorkerFacts,
    queue_facts,
    schedule_facts,
    stat_facts,
    worker_facts,
)
from .endpoints import Asked, endpoint


class Queues(TypedDict):
    queues: list[QueueFacts]


class Workers(TypedDict):
    workers: list[WorkerFacts]


class Schedules(TypedDict):
    schedules: list[ScheduleFacts]


class QueueState(TypedDict):
    name: str
    paused: bool


class Health(TypedDict):
    status: str


@endpoint("GET", "/v1/queues", "read", across_tenants=True)
async def list_queues(asked: Asked) -> Queues:
    """The queues, with their jobs by state."""
    return {"queues": queue_facts(await asked.app.acounts(), await asked.app.apaused())}


@endpoint("POST", "/v1/queues/{name:path}/pause", "operate", across_tenants=True)
async def pause_queue(asked: Asked, name: str) -> QueueState:
    """Let nothing of this queue be claimed until it is resumed. What runs goes on."""
    await asked.app.apause(name)
    return {"name": name, "paused": True}


@endpoint("POST", "/v1/queues/{name:path}/resume", "operate", across_tenants=True)
async def resume_queue(asked: Asked, name: str) -> QueueState:
    """Let its jobs be claimed again."""
    await asked.app.aresume(name)
    return {"name": name, "paused": False}


@endpoint("GET", "/v1/workers", "read", across_tenants=True)
async def list_workers(asked: Asked) -> Workers:
    """The workers that are alive."""
    return {"workers": worker_facts(await asked.app.aworkers())}


@endpoint("GET", "/v1/schedules", "read", across_tenants=True)
async def list_schedules(asked: Asked) -> Schedules:
    """The schedules, with their next five runs."""
    return {"schedules": [schedule_facts(one, one.next_runs) for one in await asked.app.aschedules()]}


@endpoint("GET", "/v1/stats", "read", across_tenants=True)
async def get_stats(asked: Asked) -> Stats:
    """Jobs by state, and by type and state."""
    return stat_facts(await asked.app.acounts())


@endpoint("GET", "/healthz", "read")
async def get_health(asked: Asked) -> Health:
    """Whether the database answers: 200, or 503."""
    await asked.app.arun_operation(asked.app.store.now)
    return {"status": "ok"}

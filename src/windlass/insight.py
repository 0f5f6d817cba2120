"""A queue as plain data to show: one model for the shell, the HTTP API and the page."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, TypedDict

import msgspec

from .dependents import BlockerInfo, ChainInfo
from .job import Job
from .lifecycle import STATES
from .redaction import hide_arguments
from .schedule import Schedule
from .stores.store import Counts, WorkerInfo

SHORT_ERROR = 1000  # characters of an error in a list


class JobFacts(TypedDict):
    """A line of a list."""

    id: str
    type: str
    queue: str
    tenant: str
    state: str
    priority: int
    attempt: int
    max_attempts: int | None
    run_at: str | None
    created_at: str | None
    finished_at: str | None
    worker: str | None
    chain_id: str
    chain_index: int
    error: str | None


class LogLine(TypedDict):
    at: str | None
    text: str


class JobDetails(JobFacts):
    """All facts of one job."""

    input: Any
    output: Any
    labels: dict[str, str]
    unique_key: str | None
    order_key: str | None
    if_failed: str
    expires_at: str | None
    claimed_at: str | None
    lease_expires_at: str | None
    cancel_requested: bool
    traceback: str | None
    attempts: list[dict[str, Any]]
    progress: float | None
    progress_text: str | None
    log: list[LogLine]


class BlockerFacts(TypedDict):
    """A chain that a job waits, or has waited, for. Its newest job is null if it is no longer kept."""

    id: str
    done: bool
    failed: bool
    output: Any
    job: JobFacts | None


class ChainFacts(TypedDict):
    """A chain: as its first job is, with the state of its newest."""

    id: str
    type: str
    queue: str
    tenant: str
    state: str
    steps: int
    created_at: str | None
    finished_at: str | None
    job: JobFacts | None


class QueueFacts(TypedDict):
    """A queue with its jobs by state."""

    name: str
    paused: bool
    blocked: int
    pending: int
    running: int
    completed: int
    failed: int
    cancelled: int


class Stats(TypedDict):
    """Jobs by state, and by type and state."""

    states: dict[str, int]
    total: int
    types: dict[str, dict[str, int]]


class WorkerFacts(TypedDict):
    """A worker that is alive."""

    name: str
    host: str
    pid: int
    queues: list[str] | None
    types: list[str]
    concurrency: int
    running: int
    started_at: str | None
    heard_at: str | None


class ScheduleFacts(TypedDict):
    """A schedule, with its next runs."""

    name: str
    cron: str
    timezone: str
    catch_up: str
    paused: bool
    last_at: str | None
    next: list[str]


def moment(value: datetime | None) -> str | None:
    return None if value is None else value.isoformat(timespec="milliseconds")


def job_facts(job: Job) -> JobFacts:
    return {
        "id": str(job.id),
        "type": job.type,
        "queue": job.queue,
        "tenant": job.tenant,
        "state": job.state,
        "priority": job.priority,
        "attempt": job.attempt,
        "max_attempts": job.max_attempts,
        "run_at": moment(job.run_at),
        "created_at": moment(job.created_at),
        "finished_at": moment(job.finished_at),
        "worker": job.worker,
        "chain_id": str(job.chain_id),
        "chain_index": job.chain_index,
        "error": None if job.error is None else str(job.error)[:SHORT_ERROR],
    }


def job_details(job: Job) -> JobDetails:
    notes, error = job.notes, job.error
    return {
        **job_facts(job),
        "error": None if error is None else str(error),
        "input": hide_arguments(job.input, job.policy.redact if job.policy else ()),
        "output": job.output,
        "labels": dict(job.labels),
        "unique_key": job.unique_key,
        "order_key": job.order_key,
        "if_failed": job.if_failed,
        "expires_at": moment(job.expires_at),
        "claimed_at": moment(job.claimed_at),
        "lease_expires_at": moment(job.lease_expires_at),
        "cancel_requested": job.cancel_requested,
        "traceback": error.traceback if error else None,
        "attempts": msgspec.to_builtins(list(job.attempts)),
        "progress": notes.fraction,
        "progress_text": notes.text,
        "log": [{"at": moment(line.at), "text": line.text} for line in notes.log],
    }


def blocker_facts(blocker: BlockerInfo, tenant: str | None = None) -> BlockerFacts:
    """`tenant`: the facts are for this tenant, and show no job of another."""
    shown = blocker.job if blocker.job is not None and tenant in (None, blocker.job.tenant) else None
    return {
        "id": str(blocker.id),
        "done": blocker.done,
        "failed": blocker.failed,
        "output": blocker.output if tenant is None or shown is not None else None,
        "job": None if shown is None else job_facts(shown),
    }


def chain_facts(chain: ChainInfo, tenant: str | None = None) -> ChainFacts:
    return {
        "id": str(chain.id),
        "type": chain.type,
        "queue": chain.queue,
        "tenant": chain.tenant,
        "state": chain.state,
        "steps": chain.steps,
        "created_at": moment(chain.created_at),
        "finished_at": moment(chain.finished_at),
        "job": job_facts(chain.job) if tenant in (None, chain.job.tenant) else None,
    }


def queue_facts(counts: Counts, paused: Sequence[str]) -> list[QueueFacts]:
    by_queue: defaultdict[str, dict[str, int]] = defaultdict(lambda: dict.fromkeys(STATES, 0))
    for tally in counts.tallies:
        by_queue[tally.queue][tally.state] += tally.count
    for name in paused:
        by_queue[name]
    return [
        QueueFacts(name=name, paused=name in paused, **by_queue[name])  # type: ignore[typeddict-item]
        for name in sorted(by_queue)
    ]


def stat_facts(counts: Counts) -> Stats:
    by_type: defaultdict[str, dict[str, int]] = defaultdict(lambda: dict.fromkeys(STATES, 0))
    for tally in counts.tallies:
        by_type[tally.type][tally.state] += tally.count
    return {"states": dict(counts), "total": counts.total, "types": {name: by_type[name] for name in sorted(by_type)}}


def worker_facts(workers: Iterable[WorkerInfo]) -> list[WorkerFacts]:
    return [
        {
            "name": one.name,
            "host": one.host,
            "pid": one.pid,
            "queues": one.queues,
            "types": one.types,
            "concurrency": one.concurrency,
            "running": one.running,
            "started_at": moment(one.started_at),
            "heard_at": moment(one.heard_at),
        }
        for one in workers
    ]


def schedule_facts(schedule: Schedule, next_runs: Sequence[datetime]) -> ScheduleFacts:
    return {
        "name": schedule.name,
        "cron": schedule.cron,
        "timezone": schedule.timezone,
        "catch_up": schedule.catch_up,
        "paused": schedule.paused_at is not None,
        "last_at": moment(schedule.last_at),
        "next": [one.isoformat(timespec="milliseconds") for one in next_runs],
    }

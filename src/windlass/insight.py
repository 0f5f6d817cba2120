"""What is shown of a queue, as plain data: one model for the shell, the HTTP API and the page."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import msgspec

from .job import Job
from .lifecycle import STATES
from .schedule import Schedule
from .stores.store import Counts, WorkerInfo

Facts = dict[str, Any]


def moment(value: datetime | None) -> str | None:
    return None if value is None else value.isoformat(timespec="milliseconds")


def job_facts(job: Job) -> Facts:
    """A line of a list."""
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
        "error": None if job.error is None else str(job.error),
    }


def job_details(job: Job) -> Facts:
    """All that there is to know of one job."""
    notes = job.notes
    return job_facts(job) | {
        "input": job.input,
        "output": job.output,
        "labels": dict(job.labels),
        "unique_key": job.unique_key,
        "order_key": job.order_key,
        "expires_at": moment(job.expires_at),
        "claimed_at": moment(job.claimed_at),
        "lease_expires_at": moment(job.lease_expires_at),
        "cancel_requested": job.cancel_requested,
        "traceback": job.error.traceback if job.error else None,
        "attempts": msgspec.to_builtins(list(job.attempts)),
        "progress": notes.fraction,
        "progress_text": notes.text,
        "log": [{"at": moment(line.at), "text": line.text} for line in notes.log],
    }


def queue_facts(counts: Counts, paused: Sequence[str]) -> list[Facts]:
    """Each queue with its jobs by state."""
    by_queue: defaultdict[str, dict[str, int]] = defaultdict(lambda: dict.fromkeys(STATES, 0))
    for tally in counts.tallies:
        by_queue[tally.queue][tally.state] += tally.count
    for name in paused:
        by_queue[name]
    return [{"name": name, "paused": name in paused, **by_queue[name]} for name in sorted(by_queue)]


def stat_facts(counts: Counts) -> Facts:
    """Jobs by state, and by type and state."""
    by_type: defaultdict[str, dict[str, int]] = defaultdict(lambda: dict.fromkeys(STATES, 0))
    for tally in counts.tallies:
        by_type[tally.type][tally.state] += tally.count
    return {"states": dict(counts), "total": counts.total, "types": {name: by_type[name] for name in sorted(by_type)}}


def worker_facts(workers: Iterable[WorkerInfo]) -> list[Facts]:
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


def schedule_facts(schedule: Schedule, next_runs: Sequence[datetime]) -> Facts:
    return {
        "name": schedule.name,
        "cron": schedule.cron,
        "timezone": schedule.timezone,
        "catch_up": schedule.catch_up,
        "paused": schedule.paused_at is not None,
        "last_at": moment(schedule.last_at),
        "next": [moment(one) for one in next_runs],
    }

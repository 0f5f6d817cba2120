"""Why is this job not running? One sentence, and the facts."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from uuid import UUID

from .engine import Engine
from .job import Job
from .lifecycle import BLOCKED, COMPLETED, FAILED, PENDING, RUNNING
from .operation import Operation
from .reads import require
from .stores.store import Filter, WorkerInfo

SHOWN = 10  # of the jobs that one waits for


def explain(engine: Engine, id: UUID | str) -> Operation[str]:
    """Why it is not running: what it waits for, who holds it, who could run it."""
    job = yield from require(engine, id)
    reasons: dict[str, Callable[[Engine, Job], Operation[list[str]]]] = {
        BLOCKED: _why_blocked,
        PENDING: _why_pending,
        RUNNING: _who_runs,
    }
    if job.state in reasons:
        lines = yield from reasons[job.state](engine, job)
    else:
        lines = _how_it_ended(job)
    first, *facts = lines
    return "\n".join([f"Job {job.id} ({job.type}) {first}", *(f"- {fact}" for fact in facts)])


def _who_runs(engine: Engine, job: Job) -> Operation[list[str]]:
    now, until = (yield from engine.store.now()), job.lease_expires_at
    held = f"is running: attempt {_attempts(job)}, since {_moment(job.claimed_at)}."
    if until is not None and until < now:
        return [held, f"its lease by {job.worker} ended at {_moment(until)}: the next rescue gives it back"]
    facts = [held, f"lease held by {job.worker} until {_moment(until)}"]
    return facts + (["someone has asked to cancel it"] if job.cancel_requested else [])


def _why_blocked(engine: Engine, job: Job) -> Operation[list[str]]:
    blockers = (yield from engine.store.blockers([job.id])).get(job.id, [])
    left = list(dict.fromkeys(blocker.chain_id for blocker in blockers if not blocker.done))
    facts: list[str] = []
    gone = False
    for chain in left[:SHOWN]:
        known = yield from _blocked_by(engine, chain)
        facts += [known or f"blocked by {chain}, which is no longer kept: it was deleted, or its time was over"]
        gone = gone or known is None
    if len(left) > SHOWN:
        facts += [f"and {len(left) - SHOWN} more"]
    if gone:
        facts += [f"it will never start by itself: cancel({str(job.id)!r}) or delete({str(job.id)!r}) ends that"]
    if job.if_failed != "wait":
        then = "it is cancelled" if job.if_failed == "cancel" else "it runs without it"
        facts += [f"when one of them fails or is cancelled, {then} (if_failed={job.if_failed!r})"]
    return [f"is blocked: it waits for {len(left)} of {len(blockers)} chains.", *facts]


def _blocked_by(engine: Engine, chain: UUID) -> Operation[str | None]:
    """None where the end of that chain is no longer known."""
    ends = yield from engine.store.ends([chain])
    if ends and ends[0].went_on:
        return None
    if ends:
        end = ends[0]
        return f"blocked by {chain} ({end.type}), which has {end.state}: retry({str(end.id)!r}) brings it back"
    found = yield from engine.store.list(Filter(chain=chain), 1)
    if not found:
        return None
    return f"blocked by {chain} ({found[0].type}), which is {found[0].state}"


def _why_pending(engine: Engine, job: Job) -> Operation[list[str]]:
    now = yield from engine.store.now()
    facts = []
    if job.run_at > now:
        facts.append(f"not due until {_moment(job.run_at)}")
    if job.expires_at is not None and job.expires_at <= now:
        facts.append(f"expired at {_moment(job.expires_at)}")
    if job.queue in (yield from engine.store.paused()):
        facts.append(f"queue {job.queue!r} is paused")
    if job.order_key is not None:
        head = yield from engine.store.head(job.tenant, job.order_key)
        if head is not None and head.id != job.id:
            facts.append(f"behind job {head.id} ({head.state}) of its order key {job.order_key!r}")
    workers = yield from engine.store.workers()
    facts += _who_could(job, workers)
    if job.error is not None:
        facts.append(f"attempt {_attempts(job)} ended with {job.error}")
    first = facts[0] if facts else "it is due, and waits for a free slot of a worker"
    return [f"is not running: {first}.", *facts[1:]]


def _who_could(job: Job, workers: list[WorkerInfo]) -> list[str]:
    if not workers:
        return ["no worker is alive"]
    of_queue = [one for one in workers if one.queues is None or job.queue in one.queues]
    if not of_queue:
        return [f"none of the {len(workers)} live workers serves queue {job.queue!r}"]
    if not any(job.type in one.types for one in of_queue):
        return [f"no live worker that serves queue {job.queue!r} knows the type {job.type!r}"]
    return []


def _how_it_ended(job: Job) -> list[str]:
    when = _moment(job.finished_at)
    if job.state == COMPLETED:
        return [f"has completed, at {when}, in attempt {_attempts(job)}."]
    facts = [] if job.error is None else [str(job.error)]
    if job.state == FAILED:
        return [f"has failed, at {when}, after attempt {_attempts(job)}.", *facts, "retry() brings it back"]
    return [f"was cancelled, at {when}.", *facts]


def _attempts(job: Job) -> str:
    return f"{job.attempt} of {job.max_attempts}" if job.max_attempts else str(job.attempt)


def _moment(moment: datetime | None) -> str:
    return "an unknown time" if moment is None else moment.isoformat(sep=" ", timespec="seconds")

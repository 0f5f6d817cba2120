"""`windlass doctor`: problems of a queue and of its database, and their remedies."""

from __future__ import annotations

import time
from collections import Counter
from datetime import UTC, datetime
from functools import partial

from .engine import Engine, Unprepared
from .errors import SchemaMismatch, StoreUnavailable
from .lifecycle import PENDING
from .operation import Flow, Operation, Unwilling, transact
from .stores.store import Counts, Finding, Tally, WorkerInfo

SKEW_SECONDS = 2.0
SILENT_SECONDS = 30.0  # a worker says every fifteen that it is alive
MOST_NAMED = 5  # queues or types in one line


def examine(engine: Engine) -> Flow[list[Finding]]:
    """Look at the connection, the schema, the clocks, the workers and the queues, and at the database itself."""
    began = time.monotonic()
    try:
        is_current = yield Unprepared(engine.store, engine.store.check_schema)
    except Unwilling as error:
        return [Finding("connection", False, str(error), "correct the user, its password or its privileges")]
    except StoreUnavailable as error:
        return [Finding("connection", False, str(error), "start the database, or correct the URL")]
    except SchemaMismatch as error:
        return [Finding("schema", False, str(error), "pip install --upgrade windlass")]
    findings = [Finding("connection", True, f"it answers in {1000 * (time.monotonic() - began):.0f} ms")]
    if not is_current:
        return [*findings, Finding("schema", False, "it is missing or too old", "windlass migrate")]
    findings.append(Finding("schema", True, "it is up to date"))
    findings += yield from transact(engine.store.examine)
    findings.append((yield from transact(partial(_clock, engine))))
    findings += yield from transact(partial(_workers_and_queues, engine))
    return findings


def _clock(engine: Engine) -> Operation[Finding]:
    before = datetime.now(UTC)
    now = yield from engine.store.now()
    after = datetime.now(UTC)
    skew = max((before - now).total_seconds(), (now - after).total_seconds(), 0.0)
    how = f"differ by {skew:.1f} s" if skew > 0.1 else "agree"
    remedy = "set both by NTP: timedatectl set-ntp true"
    return Finding("clock", skew < SKEW_SECONDS, f"this machine and the database {how}", remedy)


def _workers_and_queues(engine: Engine) -> Operation[list[Finding]]:
    workers = yield from engine.store.workers()
    counts = yield from engine.store.counts()
    paused = yield from engine.store.paused()
    now = yield from engine.store.now()
    is_lost = yield from engine.store.anyone_lost()
    return [
        _workers(workers, counts, now),
        _leases(is_lost),
        _unserved(workers, counts, paused),
        _paused(counts, paused),
    ]


def _workers(workers: list[WorkerInfo], counts: Counts, now: datetime) -> Finding:
    silent = [one.name for one in workers if one.heard_at and (now - one.heard_at).total_seconds() > SILENT_SECONDS]
    if silent:
        text = f"no heartbeat for more than {SILENT_SECONDS:g} s: {_named(silent)}"
        return Finding("workers", False, text, "see whether the process is still there, and start it again")
    if not workers:
        return Finding("workers", not counts[PENDING], "none is alive", "windlass worker jobs:app")
    slots, busy = sum(one.concurrency for one in workers), sum(one.running for one in workers)
    return Finding("workers", True, f"{len(workers)} alive, {busy} of {slots} slots in use")


def _leases(is_lost: bool) -> Finding:
    text = "the leases of running jobs have ended" if is_lost else "no running job has lost its worker"
    return Finding("leases", not is_lost, text, "a worker rescues these jobs: windlass worker jobs:app")


def _unserved(workers: list[WorkerInfo], counts: Counts, paused: list[str]) -> Finding:
    """Types and queues of which jobs wait, and that no live worker serves."""
    if not workers:
        return Finding("types", True, "there is no worker to ask")
    waiting: Counter[str] = Counter()
    for tally in counts.tallies:
        if tally.state == PENDING and tally.count and tally.queue not in paused and not _is_served(tally, workers):
            waiting[f"{tally.type} in queue {tally.queue}"] += tally.count
    if not waiting:
        return Finding("types", True, "each waiting job has a worker that can run it")
    named = _named([f"{count:,} of {what}" for what, count in waiting.most_common()])
    remedy = "start a worker that has these tasks and serves these queues"
    return Finding("types", False, f"no live worker runs {named}", remedy)


def _is_served(tally: Tally, workers: list[WorkerInfo]) -> bool:
    return any(tally.type in one.types and (one.queues is None or tally.queue in one.queues) for one in workers)


def _paused(counts: Counts, paused: list[str]) -> Finding:
    waiting = Counter(dict.fromkeys(paused, 0))
    for tally in counts.tallies:
        if tally.state == PENDING and tally.queue in waiting:
            waiting[tally.queue] += tally.count
    named = [f"{queue} ({count:,} waiting)" for queue, count in sorted(waiting.items())]
    return Finding("paused", True, _named(named) if named else "no queue is paused")


def _named(names: list[str]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more

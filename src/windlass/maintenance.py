"""Queues, workers, and the care of a queue. Workers do most of it by themselves."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from .call import check_name
from .engine import Engine
from .operation import Flow, Operation, transact
from .outcome import Settlement
from .stores.store import WorkerInfo
from .stores.wakeup import Hint

AT_ONCE = 500  # jobs in one transaction


def pause(engine: Engine, queue: str) -> Operation[None]:
    """Pause a queue: workers claim none of its jobs until it is resumed. Jobs that run continue."""
    yield from engine.store.pause(check_name("queue", queue))


def resume(engine: Engine, queue: str) -> Operation[None]:
    """Resume a paused queue."""
    yield from engine.store.resume(check_name("queue", queue))
    yield from engine.store.hint([Hint("ready", queue)])


def paused(engine: Engine) -> Operation[list[str]]:
    """The names of the paused queues."""
    return (yield from engine.store.paused())


def workers(engine: Engine) -> Operation[list[WorkerInfo]]:
    """The workers that are alive: host, pid, queues, how many jobs they run."""
    return (yield from engine.store.workers())


def rescue_some(engine: Engine, limit: int, stale_before: datetime | None = None) -> Operation[list[Settlement]]:
    """Rescue at most `limit` jobs. A hint reaches the worker of each, in case that it still runs."""
    settlements = yield from engine.store.rescue(limit, stale_before=stale_before)
    yield from engine.store.hint([Hint("told", str(settlement.id)) for settlement in settlements])
    return settlements


def rescue(engine: Engine, stale_before: datetime | None = None) -> Flow[int]:
    """Give back the jobs that dead workers hold: how many. Their lease is over or, with `stale_before`, their last
    heartbeat came before that moment. Workers do this by themselves."""
    return (yield from _repeat(lambda: _count(rescue_some(engine, AT_ONCE, stale_before))))


def expire(engine: Engine) -> Flow[int]:
    """Cancel jobs that did not start in time (`expires=`): how many. Workers do this by themselves."""
    return (yield from _repeat(lambda: _count(engine.store.expire(AT_ONCE))))


def prune(engine: Engine) -> Flow[int]:
    """Remove finished jobs whose retention (`keep=`) is over: how many. Workers do this by themselves."""
    return (yield from _repeat(lambda: engine.store.prune(AT_ONCE * 10)))


def vacuum(engine: Engine) -> Operation[None]:
    """Reclaim space now."""
    yield from engine.store.vacuum()


def _count(operation: Operation[list[Settlement]]) -> Operation[int]:
    return len((yield from operation))


def _repeat(make: Callable[[], Operation[int]]) -> Flow[int]:
    """One transaction after the other, until one finds nothing to do."""
    total = 0
    while count := (yield from transact(make)):
        total += count
    return total

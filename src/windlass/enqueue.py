"""Enqueue: calls become jobs, all of a batch or none, with hints after the commit."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from . import codec
from .block import Block
from .call import NO_OPTIONS, Call, check_blockers, check_name
from .engine import Engine
from .errors import InvalidInput, UnknownTask
from .job import Job, NewJob
from .logs import Log
from .operation import Flow, Interrupted, Operation, Transaction, check_connection, transact
from .policy import UNSET
from .stores.store import Admitted, Enqueued
from .stores.wakeup import Hint

if TYPE_CHECKING:
    from .attempt import Attempt

log = Log("windlass")

R = TypeVar("R")

ADMITTED_AT_ONCE = 500


def enqueue_many(engine: Engine, calls: Iterable[Call[R]], connection: Any = UNSET) -> Flow[list[Job[R]]]:
    """Inside `attempt.transaction()` the jobs join the transaction of that block."""
    connection = check_connection(connection)
    jobs = _new_jobs(engine, calls)
    if not jobs:
        return []
    block = engine.current_block(connection)
    connection = connection if block is None else block.connection
    if connection is not None:
        done: list[Enqueued] = yield Transaction(lambda: _join(engine, jobs, block), connection)
        return _as_jobs(engine, done, connection)
    return (yield from enqueue_new(engine, jobs))


def enqueue_new(engine: Engine, jobs: Sequence[NewJob]) -> Flow[list[Job]]:
    """In a transaction of its own."""
    done: list[Enqueued]
    try:
        done = yield Transaction(lambda: engine.store.enqueue(jobs))
    except Interrupted:  # perhaps it was committed: the ids are ours, so to send them again doubles nothing
        done = yield Transaction(lambda: engine.store.enqueue(jobs, resent=True))
    if any(job.order_key or job.blockers for job in jobs):
        try:
            yield from admit_all(engine)
        except Exception as error:
            log.debug("new jobs could not be admitted now, a worker will admit them: %s", error)
    return _as_jobs(engine, done)


def _new_jobs(engine: Engine, calls: Iterable[Call]) -> list[NewJob]:
    if not isinstance(calls, Iterable):
        raise InvalidInput(f"enqueue_many takes a list of calls, not {type(calls).__name__}")
    jobs = []
    for call in calls:
        if not isinstance(call, Call):
            raise InvalidInput(f"enqueue_many takes calls, as task.call(…) makes them, not {type(call).__name__}")
        jobs.append(call.new_job(engine.make_id))
    if any(job.blockers for job in jobs):
        check_blockers(jobs, engine.max_blockers)
    return jobs


def _join(engine: Engine, jobs: Sequence[NewJob], block: Block | None) -> Operation[list[Enqueued]]:
    """In the caller's transaction, with the hints: its commit sends them."""
    if block is not None:
        yield from _free_own_key(engine, jobs, block.attempt)
    done = yield from engine.store.enqueue(jobs)
    yield from engine.store.hint(_ready_hints(done))
    return done


def _free_own_key(engine: Engine, jobs: Sequence[NewJob], attempt: Attempt) -> Operation[None]:
    """A block completes its job: the unique key of that job is free for the next one."""
    own = attempt.job
    for job in jobs:
        if job.unique_key is not None and (job.tenant, job.unique_key) == (own.tenant, own.unique_key):
            yield from engine.store.free_own_key(own.id, attempt.token, job.unique_scope, job.unique_key)


def _as_jobs(engine: Engine, done: Sequence[Enqueued], connection: Any = None) -> list[Job]:
    if connection is None and engine.store.notify:
        _send_hints(engine, done)
    jobs = [engine.bind(one.job, created=one.created) for one in done]
    if engine.hooks:
        engine.enqueued_hooks.tell(jobs, connection)
    return jobs


def _send_hints(engine: Engine, done: Sequence[Enqueued]) -> None:
    """The jobs are committed, so no error may reach the caller, who would enqueue them again."""
    hints = _ready_hints(done)
    try:
        if hints:
            engine.store.wakeup.send(hints)
    except Exception as error:
        log.warning("the hints of new jobs could not be sent, workers will find the jobs by polling: %s", error)


def _ready_hints(done: Sequence[Enqueued]) -> list[Hint]:
    queues = {one.job.queue for one in done if one.created}
    return [Hint("ready", queue) for queue in sorted(queues)]


def admit(engine: Engine) -> Operation[Admitted]:
    """Admit jobs that wait for others or for their turn. Workers admit those that came on a borrowed connection."""
    return (yield from engine.store.admit(ADMITTED_AT_ONCE))


def admit_all(engine: Engine) -> Flow[Admitted]:
    """All that can be admitted now. `left` counts the others: admit them later."""
    while (admitted := (yield from transact(lambda: admit(engine)))).jobs:
        pass
    return admitted


def make_call(
    engine: Engine, type: str, input: Mapping[str, Any] | None, strict: bool, options: Mapping[str, Any]
) -> Call:
    """A call by name: of a task of this app or, unless it is `strict`, of one that only its worker knows."""
    chosen = NO_OPTIONS.updated(options) if options else NO_OPTIONS
    task = engine.tasks.get(type) if isinstance(type, str) else None
    given = {} if input is None else input
    if task is not None:
        return task.call_object(given, chosen, options.keys())
    check_name("type", type)
    if strict:
        near = difflib.get_close_matches(type, engine.tasks, 1)
        guess = f"; do you mean {near[0]!r}?" if near else ""
        raise UnknownTask(f"there is no task {type!r} in this app{guess}")
    if not isinstance(given, Mapping):
        raise InvalidInput(f"{type}: the input is an object of arguments by name")
    encoded = codec.encode(dict(given), engine.max_payload)
    return Call(type=type, input=encoded, options=chosen)

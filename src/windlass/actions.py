"""Act on one job: cancel, retry, run now, complete, fail, delete. No worker and no task is needed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID, uuid4

from msgspec.structs import replace

from .call import check_id
from .engine import Engine
from .errors import Conflict
from .job import Job, no_job
from .lifecycle import CANCELLED, COMPLETED, FAILED, Event, why_not
from .operation import Operation
from .outcome import Continue, Settlement, describe_error, encode_error, next_of_chain
from .policy import UNSET
from .reads import get, require
from .stores.store import Change, Store
from .stores.wakeup import Hint

OPERATIONS: dict[Event, Callable[[Store], Callable[..., Operation[list[Change]]]]] = {
    "cancel": lambda store: store.cancel,
    "bring back": lambda store: store.retry,
    "run now": lambda store: store.run_now,
    "delete": lambda store: store.delete,
}


def cancel(engine: Engine, id: UUID | str, *, connection: Any = UNSET) -> Operation[Job]:
    """Do not run this job. If it runs, this is a request: its worker carries it out."""
    before = yield from require(engine, id)
    yield from _act(engine, "cancel", id)
    # A job with keep=0 is gone by now.
    return (yield from get(engine, id)) or engine.bind(replace(before, state=CANCELLED))


def retry(engine: Engine, id: UUID | str, *, connection: Any = UNSET) -> Operation[Job]:
    """Bring a failed or cancelled job back: due now, with all its attempts."""
    yield from _act(engine, "bring back", id)
    return (yield from require(engine, id))


def run_now(engine: Engine, id: UUID | str, *, connection: Any = UNSET) -> Operation[Job]:
    """Do not wait for its time."""
    yield from _act(engine, "run now", id)
    return (yield from require(engine, id))


def delete(engine: Engine, id: UUID | str, *, cascade: bool = False, connection: Any = UNSET) -> Operation[None]:
    """Remove its chain and the unique keys that it holds. Refused while it runs, or while another chain waits for it.
    `cascade`: also the chains that it waited for, and so on, where they do not run and no other chain waits for
    them."""
    yield from _act(engine, "delete", id, cascade=cascade)


def complete(engine: Engine, id: UUID | str, output: Any = None, *, connection: Any = UNSET) -> Operation[Job]:
    """Complete a job without a worker, for a person or a webhook. A worker that runs it gets a signal to stop.
    `Continue(call)` as the output creates the next job of its chain. With `connection`, in that transaction."""
    job = yield from require(engine, id)
    if isinstance(output, Continue):
        following = next_of_chain(job, output.call, engine.make_id, engine.max_blockers)
        ended = Settlement(id=job.id, token=None, state=COMPLETED, continues=following)
    else:
        ended = Settlement(id=job.id, token=None, state=COMPLETED, output=engine.encode_output(job, output))
    return (yield from _end(engine, job, "complete", ended))


def fail(engine: Engine, id: UUID | str, error: BaseException | str, *, connection: Any = UNSET) -> Operation[Job]:
    """Fail a job for good, without a worker. A worker that runs it gets a signal to stop."""
    job = yield from require(engine, id)
    ended = Settlement(id=job.id, token=None, state=FAILED, error=encode_error(describe_error(error)))
    return (yield from _end(engine, job, "fail", ended))


def _act(engine: Engine, event: Event, id: UUID | str, **options: Any) -> Operation[None]:
    (change,) = yield from OPERATIONS[event](engine.store)([check_id(id)], **options)
    if change.state is None:
        raise no_job(id)
    if not change.done and not (event == "cancel" and change.state == "cancelled"):
        key_is_taken = event == "bring back" and change.state in ("failed", "cancelled")
        reason = "another job holds its unique key by now" if key_is_taken else why_not(event, change.state)
        raise Conflict(f"job {id}: {change.reason or reason}")
    yield from send_hints(engine, event, [change])


def send_hints(engine: Engine, event: Event, changes: Sequence[Change]) -> Operation[None]:
    """Jobs may be due now, and workers may have to stop."""
    if event in ("bring back", "run now"):
        hints = {Hint("ready", change.queue) for change in changes if change.done and change.queue}
    elif event == "cancel":
        hints = {Hint("told", str(change.id)) for change in changes if change.done and change.state == "running"}
    else:
        return
    yield from engine.store.hint(sorted(hints, key=Hint.encode))


def _end(engine: Engine, job: Job, event: Event, ended: Settlement) -> Operation[Job]:
    """A worker that runs the job loses it first. A job that waits ends as it is."""
    token = uuid4()
    seized = yield from engine.store.seize([job.id], token)
    settlement = replace(ended, token=token) if seized else ended
    refusals = yield from engine.store.settle([settlement])
    if refusals:
        now = yield from require(engine, job.id)
        raise Conflict(f"job {job.id}: {why_not(event, now.state)}")
    hints = [Hint("told", str(job.id))] if seized else []
    if ended.continues is not None:
        hints.append(Hint("ready", ended.continues.queue))
    yield from engine.store.hint(hints)
    if job.keep_seconds_raw == 0:
        return engine.bind(replace(job, state=ended.state, output_json=ended.output))
    return (yield from require(engine, job.id))

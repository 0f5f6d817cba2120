"""One attempt, in a line: decode, call, encode, decide.

Every end becomes a settlement: no exception of a handler gets past this module.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable
from datetime import timedelta
from typing import Any

from ..app import Windlass
from ..attempt import Attempt, Stop, current
from ..block import BlockConflict, BlockRefused
from ..call import Call
from ..errors import InvalidInput, LeaseLost
from ..job import Job
from ..lifecycle import COMPLETED
from ..logs import Log, job_fields
from ..outcome import (
    Cancel,
    Continue,
    Interruption,
    Settlement,
    Snooze,
    decide,
    describe_error,
    ended_after,
    give_back,
    without_secrets,
)
from ..policy import DEFAULT
from ..task import Task
from .deadline import Deadline
from .handlers import UNREADABLE_SECONDS, Handlers
from .loops import SlotTask
from .unspent import MOST_REFUSALS, Unspent

log = Log("windlass.worker")

BLOCK_TRIES = 10  # of a handler whose transaction met another's
BLOCK_PAUSE, LONGEST_BLOCK_PAUSE = 0.02, 2.0  # seconds, the first doubled from try to try, taken in part at random
MOST_CANCELLED = 10  # times in a row that other code may cancel a job's task before that counts as its failure


class TimedOut(Interruption, TimeoutError):
    """The attempt took longer than its timeout."""


class Executor:
    def __init__(self, app: Windlass) -> None:
        self.app = app
        self.handlers = Handlers(app)
        self.threads = self.handlers.threads
        self.unspent = Unspent()

    async def execute(self, attempt: Attempt, slot: SlotTask, began: float) -> Settlement | None:
        """The settlement to write, or None if the attempt has lost its lease. `slot` is the task that this runs in."""
        if attempt.stop is not None:  # while it waited in the buffer
            return self._decide(attempt, asyncio.CancelledError(), 0.0)
        job = attempt.job
        attempt.task = slot
        current.set(attempt)
        result: object
        conflicts = 0
        deadline: Deadline | None = None
        while True:
            try:
                if conflicts:  # the other needs time to end, and those that met must not meet again
                    await asyncio.sleep(random.random() * min(BLOCK_PAUSE * 2**conflicts, LONGEST_BLOCK_PAUSE))
                task, handler = self.handlers.known.get(job.type) or self.handlers.find(job.type)
                arguments = _read(task, job)
                timeout = None if job.policy_json is None else (job.policy or DEFAULT).timeout_seconds
                call = handler(attempt, arguments)
                if timeout is not None:
                    deadline = deadline or Deadline(attempt, timeout)
                value = await (call if deadline is None else _within(deadline, call))
                result = _written(attempt, task, value)
            except BlockConflict as error:
                conflicts += 1
                if conflicts < BLOCK_TRIES and attempt.stop is None:
                    continue
                result = BlockRefused(str(error)) if error.in_settlement else error.__cause__ or error
            except BaseException as error:  # recorded first, whatever it is
                result = error
            break
        attempt.task = None
        if type(result) is asyncio.CancelledError and attempt.stop is None and slot.is_cancelled_by_others:
            result = self.unspent.snooze(job, result, "other code has cancelled its task", MOST_CANCELLED)
        elif self.unspent.counts and not isinstance(result, BlockRefused):
            self.unspent.counts.pop(job.id, None)
        if self.threads.closed and attempt.interrupter is not None:
            return None  # its thread still runs, and is left behind: its lease fences it
        if attempt.settled:
            _tell_what_is_ignored(attempt, result)
            return None
        if attempt.unconfirmed_settlement is not None and not isinstance(result, BaseException) and result != "null":
            log.warning(
                "job %s: what the handler returned counts only if its own transaction was rolled back",
                job.id, extra=job_fields(job),
            )  # fmt: skip
        if type(result) is str and attempt.stop is None:
            return attempt.with_notes(Settlement(id=job.id, token=attempt.token, state=COMPLETED, output=result))
        if isinstance(result, Settlement):
            return self._decide(attempt, "null", 0.0) and attempt.with_notes(result)
        return self._decide(attempt, result, time.perf_counter() - began)

    def _decide(self, attempt: Attempt, result: object, seconds: float) -> Settlement | None:
        job = attempt.job
        match attempt.stop:
            case Stop.LEASE_LOST if attempt.unconfirmed_settlement is not None:
                return attempt.unconfirmed_settlement  # the lease may have ended with the job: the store knows
            case Stop.LEASE_LOST:
                log.warning(
                    "job %s: the lease was lost (%s); what this attempt did is not counted", job.id, attempt.why,
                    extra=job_fields(job),
                )  # fmt: skip
                return None
            case Stop.SHUTDOWN if not isinstance(result, str):
                return give_back(job, attempt.token)
            case Stop.CANCEL if not isinstance(result, str):
                result = Cancel(attempt.why or "cancelled while it ran")
            case Stop.TIMEOUT if not isinstance(result, str):
                seconds_allowed = job.policy.timeout_seconds if job.policy else None
                result = TimedOut(f"not done within {seconds_allowed:g} s")
        if isinstance(result, LeaseLost) and result.token == attempt.token:  # not of a job that the handler has claimed
            attempt.stop = Stop.LEASE_LOST  # the handler was the first to find out
            return None
        if isinstance(result, BlockRefused):
            result = self.unspent.snooze(job, result, "the store did not take its transaction", MOST_REFUSALS)
        if isinstance(result, str):
            settlement = decide(job, attempt.token, result, random=random.random)
        else:
            ended = ended_after(job, timedelta(seconds=seconds))
            retryable = self._may_retry(job.type, result)
            settlement = decide(job, attempt.token, result, random=random.random, ended_at=ended, retryable=retryable)
        return attempt.with_notes(settlement)

    def _may_retry(self, type: str, error: object) -> bool:
        task = self.app.tasks.get(type)
        return task is None or not isinstance(error, BaseException) or task.retry_rules.allow(error)

    def close(self) -> None:
        self.handlers.close()


def _read(task: Task[..., Any], job: Job) -> dict[str, Any]:
    try:
        return task.signature.decode_arguments(job.input_json)
    except InvalidInput as error:
        raise Snooze(f"this version cannot read the payload: {error}", after=UNREADABLE_SECONDS) from error


def _written(attempt: Attempt, task: Task[..., Any], value: Any) -> Settlement | str:
    """The result as it is stored. A handler that has settled its job itself need not return one."""
    if type(value) is Continue:
        return attempt.completion(value)
    if type(value) is Call:  # a value of the handler may have a __class__ that raises
        raise TypeError(f"{task.name} returned a call. To continue the chain with it, return Continue(…)")
    if value is None and attempt.unconfirmed_settlement is not None:
        return "null"
    return task.signature.encode_result(value)


def _tell_what_is_ignored(attempt: Attempt, result: object) -> None:
    """The handler has settled its job itself. Nothing that it does afterwards changes that."""
    job = attempt.job
    if isinstance(result, BaseException):
        log.warning(
            "job %s: completed in its transaction, and then raised %s: nothing is undone", job.id,
            without_secrets(job, describe_error(result)), extra=job_fields(job),
        )  # fmt: skip
    elif result != "null":
        log.warning(
            "job %s (%s): what the handler returned is ignored: it has completed in a transaction. To give an output "
            "or to continue the chain, call attempt.complete(…) inside the block", job.id, job.type,
            extra=job_fields(job),
        )  # fmt: skip


async def _within(deadline: Deadline, call: Awaitable[Any]) -> Any:
    with deadline:
        return await call

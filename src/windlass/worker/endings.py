"""The ends of an attempt that are no plain result: an error, a stop, a settlement that the handler made itself."""

from __future__ import annotations

import random
from datetime import timedelta

from ..app import Windlass
from ..attempt import Attempt, Stop
from ..block import BlockRefused
from ..errors import LeaseLost
from ..logs import Log, job_fields
from ..outcome import Cancel, Interruption, Settlement, decide, describe_error, ended_after, give_back, without_secrets
from .unspent import MOST_REFUSALS, Unspent

log = Log("windlass.worker")


class TimedOut(Interruption, TimeoutError):
    """The attempt took longer than its timeout."""


class Endings:
    """Makes settlements of such ends."""

    def __init__(self, app: Windlass) -> None:
        self.app = app
        self.unspent = Unspent()

    def decide(self, attempt: Attempt, result: object, seconds: float) -> Settlement | None:
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
        if isinstance(result, LeaseLost) and (result.job_id, result.token) == (job.id, attempt.token):
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


def tell_what_is_ignored(attempt: Attempt, result: object) -> None:
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

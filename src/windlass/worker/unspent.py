"""Attempts that end badly without a fault of the handler, so that no attempt is spent.

The store has refused a block (`attempt.transaction()`) for a reason that is not in the data: nothing was committed. Or
other code has cancelled the task that the handler runs in, as a handler does that cancels all tasks. The job is given
back, and each such end in a row doubles the wait. The counts are this worker's own: another worker begins with the
short wait.

A handler can be the reason itself (SET ROLE without rights, SET TRANSACTION READ ONLY). If it happens again and again
to one job, the fault is there: then an attempt is spent.
"""

from __future__ import annotations

import random
from uuid import UUID

from ..job import Job
from ..logs import Log, job_fields
from ..outcome import Snooze, describe_error, without_secrets

log = Log("windlass.worker")

FIRST_DELAY, LONGEST_DELAY = 0.5, 15.0  # seconds, the first doubled each time, a quarter of it at random
MOST_COUNTED = 10_000  # jobs
MOST_REFUSALS = 120  # of blocks, in a row of one job: about half an hour


class Unspent:
    def __init__(self) -> None:
        self.counts: dict[UUID, int] = {}  # in a row; the executor removes a job that ends otherwise

    def snooze(self, job: Job, error: BaseException, why: str, most: int) -> BaseException:
        """How the attempt ends: it is given back, or the error counts as its failure, if that was so `most` times."""
        count = self.counts.pop(job.id, 0)
        if count >= most:
            return error
        if len(self.counts) >= MOST_COUNTED:
            del self.counts[next(iter(self.counts))]  # the oldest
        self.counts[job.id] = count + 1
        delay = min(FIRST_DELAY * 2.0 ** min(count, 30), LONGEST_DELAY) * random.uniform(0.75, 1.0)
        message = without_secrets(job, describe_error(error)).message
        reason = f"{why}: {message}" if message else why
        log.warning(
            "job %s (%s): no attempt is spent, and it is tried again in %.1f s: %s", job.id, job.type, delay, reason,
            extra=job_fields(job),
        )  # fmt: skip
        return Snooze(reason, after=delay)

"""How long a job waits after the store has refused its block (`attempt.transaction()`) for a reason not in the data.

Nothing was committed, so the job is given back and no attempt is spent. Each further refusal doubles the wait. The
counts are this worker's own: another worker begins with the short wait.

A handler can be the reason itself (SET ROLE without rights, SET TRANSACTION READ ONLY). While the store refuses one
block for half an hour and writes all else, the fault is there: then an attempt is spent.
"""

from __future__ import annotations

import random
from uuid import UUID

from ..block import BlockRefused
from ..job import Job
from ..logs import Log, job_fields
from ..outcome import Snooze, describe_error, without_secrets

log = Log("windlass.worker")

FIRST_DELAY, LONGEST_DELAY = 0.5, 15.0  # seconds, the first doubled from refusal to refusal, a quarter of it at random
MOST_COUNTED = 10_000  # jobs
MOST_REFUSALS = 120  # in a row of one job: about half an hour


class RefusedBlocks:
    def __init__(self) -> None:
        self.counts: dict[UUID, int] = {}  # refusals in a row; the executor removes a job that ends otherwise

    def snooze(self, job: Job, refusal: BlockRefused) -> Snooze | BlockRefused:
        """How the attempt ends: it is given back, or the refusal counts as its failure."""
        count = self.counts.pop(job.id, 0)
        if count >= MOST_REFUSALS:
            return refusal
        if len(self.counts) >= MOST_COUNTED:
            del self.counts[next(iter(self.counts))]  # the oldest
        self.counts[job.id] = count + 1
        delay = min(FIRST_DELAY * 2.0 ** min(count, 30), LONGEST_DELAY) * random.uniform(0.75, 1.0)
        reason = without_secrets(job, describe_error(refusal)).message
        log.warning(
            "job %s (%s): the store did not take its transaction. No attempt is spent, and it is tried again "
            "in %.1f s: %s", job.id, job.type, delay, reason, extra=job_fields(job),
        )  # fmt: skip
        return Snooze(reason, after=delay)

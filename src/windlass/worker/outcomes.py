"""What the log says of how attempts ended. Of what went well it says nothing, unless it is asked to (DEBUG)."""

from __future__ import annotations

import msgspec

from .. import lifecycle
from ..job import Job, JobError
from ..logs import Log, job_fields
from ..outcome import Settlement

log = Log("windlass.worker")


def log_outcome(job: Job, settlement: Settlement) -> None:
    """After it was written. The error's message alone: its traceback is kept with the job."""
    fields = job_fields(job)
    if settlement.error is None:
        how = "completed" if settlement.state == lifecycle.COMPLETED else "sent back"
        log.debug("job %s (%s) was %s", job.id, job.type, how, extra=fields)
        return
    error = msgspec.json.decode(settlement.error, type=JobError)
    match settlement.state:
        case lifecycle.CANCELLED:
            log.info("job %s (%s) was cancelled: %s", job.id, job.type, error, extra=fields)
        case lifecycle.PENDING:
            again = "job %s (%s) failed in attempt %d and is tried again: %s"
            log.warning(again, job.id, job.type, job.attempt, error, extra=fields)
        case _:
            log.error("job %s (%s) has failed, in attempt %d: %s", job.id, job.type, job.attempt, error, extra=fields)

"""What becomes of an attempt whose outcome the store refuses to write because of its content.

Nothing is lost without a word: the job fails, and its error has what the handler returned, as far as an error may be
long.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from ..attempt import Attempt
from ..errors import Conflict, InvalidInput, JobNotFound
from ..job import JobError
from ..lifecycle import FAILED
from ..logs import Log, job_fields
from ..outcome import Settlement, decide, describe_error, encode_error, make_safe, without_secrets

log = Log("windlass.worker")

OF_THE_NEXT_JOB = (Conflict, JobNotFound)  # that a chain continues with: it cannot be stored, and never will be
OF_THE_CONTENT = (InvalidInput, ValueError, TypeError, OverflowError)  # the last ones: a driver could not encode it


def is_refused_for_its_content(settlements: Sequence[Settlement], error: Exception) -> bool:
    """Whether one of these cannot be written as it is, now or later."""
    if isinstance(error, OF_THE_NEXT_JOB):
        return any(settlement.continues is not None for settlement in settlements)
    return isinstance(error, OF_THE_CONTENT)


def settle_instead(attempt: Attempt, settlement: Settlement, error: Exception) -> Iterator[Settlement]:
    """What to write in place of that, one after the other, until the store takes it."""
    job = attempt.job
    if settlement.continues is not None:  # the attempt ends as one that has raised this
        yield attempt.with_notes(decide(job, attempt.token, error, random=random.random))
    reason = describe_error(error).message
    said = make_safe(settlement.output or settlement.error or "")
    refused = JobError("SettlementRefused", f"the store refused how this attempt ended: {reason}", _told(settlement))
    log.error(
        "job %s (%s): the store refused how its attempt ended, and it fails: %s. What it ended with: %s",
        job.id, job.type, reason, without_secrets(job, JobError("", said)).message, extra=job_fields(job),
    )  # fmt: skip
    yield _failed(settlement, without_secrets(job, refused))
    yield _failed(settlement, JobError("SettlementRefused", "the store refused how this attempt ended"))


def _told(settlement: Settlement) -> str | None:
    """Where a person looks who wants to know what came of it."""
    if settlement.output is not None:
        return make_safe(f"The handler returned {len(settlement.output):,} characters of JSON:\n{settlement.output}")
    return None if settlement.error is None else make_safe(f"The attempt ended with:\n{settlement.error}")


def _failed(settlement: Settlement, error: JobError) -> Settlement:
    return Settlement(id=settlement.id, token=settlement.token, state=FAILED, error=encode_error(error))

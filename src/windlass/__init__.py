"""Windlass: a durable job queue that lives inside the database an application already has.

The database is the queue: SQLite in one file, PostgreSQL, MongoDB, with one meaning on all three.
"""

from .acting import Page
from .app import Windlass
from .attempt import Attempt, current_attempt
from .backoff import Exponential, Fixed, Polynomial
from .call import Call
from .errors import (
    Conflict,
    InvalidInput,
    JobCancelled,
    JobFailed,
    JobNotFound,
    LeaseLost,
    MissingExtra,
    ScheduleNotFound,
    SchemaMismatch,
    StoreUnavailable,
    UnknownTask,
    WindlassError,
)
from .job import Job, JobError
from .outcome import Cancel, Continue, Fail, Retry, Snooze
from .schedule import Schedule
from .task import Task
from .unique import Unique

__version__ = "0.1.0"

__all__ = [
    "Attempt",
    "Call",
    "Cancel",
    "Conflict",
    "Continue",
    "Exponential",
    "Fail",
    "Fixed",
    "InvalidInput",
    "Job",
    "JobCancelled",
    "JobError",
    "JobFailed",
    "JobNotFound",
    "LeaseLost",
    "MissingExtra",
    "Page",
    "Polynomial",
    "Retry",
    "Schedule",
    "ScheduleNotFound",
    "SchemaMismatch",
    "Snooze",
    "StoreUnavailable",
    "Task",
    "Unique",
    "UnknownTask",
    "Windlass",
    "WindlassError",
    "current_attempt",
]

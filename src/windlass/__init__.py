"""Windlass: a durable job queue that lives inside the database an application already has.

The database is the queue: SQLite in one file, PostgreSQL, MongoDB, with one meaning on all three.
"""

from typing import TYPE_CHECKING, Any

from .app import Windlass
from .attempt import Attempt, current_attempt
from .backoff import Exponential, Fixed, Polynomial
from .call import Call
from .defaults import Defaults
from .dependents import BlockerInfo, ChainInfo, ChainPage
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
from .reads import Page
from .schedule import Schedule
from .task import Task
from .tasks import Tasks
from .unique import Unique

if TYPE_CHECKING:
    from .worker.worker import Worker
else:  # a type checker would take it for a module that has every name

    def __getattr__(name: str) -> Any:
        """The worker is imported at its first use: a program that only enqueues does not wait for it."""
        if name != "Worker":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from .worker.worker import Worker

        return Worker


__version__ = "0.1.0"

__all__ = [
    "Attempt",
    "BlockerInfo",
    "Call",
    "Cancel",
    "ChainInfo",
    "ChainPage",
    "Conflict",
    "Continue",
    "Defaults",
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
    "Tasks",
    "Unique",
    "UnknownTask",
    "Windlass",
    "WindlassError",
    "Worker",
    "current_attempt",
]

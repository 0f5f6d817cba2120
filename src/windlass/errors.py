"""The errors that users may catch. All of them are `WindlassError`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from uuid import UUID


class WindlassError(Exception):
    """The base of all errors that Windlass raises on purpose."""


class InvalidInput(WindlassError):
    """An argument, option or payload is not valid. Nothing was stored."""


class UnknownTask(WindlassError):
    """No task of that name is registered in this app."""


class JobNotFound(WindlassError):
    """There is no such job: it never existed, it was deleted, or its retention has ended."""


class ScheduleNotFound(WindlassError):
    """There is no schedule of that name."""


class LeaseLost(WindlassError):
    """This attempt no longer holds the lease of its job. Its write was refused. `job_id` and `token` are those of the
    attempt."""

    def __init__(self, message: str = "", job_id: UUID | None = None, token: UUID | None = None) -> None:
        super().__init__(message)
        self.job_id, self.token = job_id, token


class JobFailed(WindlassError):
    """The job has failed, so it has no result."""


class JobCancelled(WindlassError):
    """The job was cancelled, so it has no result."""


class Conflict(WindlassError):
    """The job's state does not allow this, or its unique key belongs to another job."""


class StoreUnavailable(WindlassError):
    """The database cannot be reached. The last write may have been made or not."""


class SchemaMismatch(WindlassError):
    """The schema in the database is missing, too old or too new for this version."""


class MissingExtra(WindlassError):
    """An optional dependency is not installed. The message names the extra that installs it."""

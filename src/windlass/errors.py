"""The errors that users may catch. All of them are `WindlassError`."""


class WindlassError(Exception):
    """The base of every error that Windlass raises on purpose."""


class InvalidInput(WindlassError):
    """An argument, option or payload cannot be accepted; nothing was stored."""


class UnknownTask(WindlassError):
    """No task of that name is registered in this app."""


class JobNotFound(WindlassError):
    """There is no such job: it never existed, was deleted, or its retention is over."""


class ScheduleNotFound(WindlassError):
    """There is no schedule of that name."""


class LeaseLost(WindlassError):
    """This attempt no longer holds its job; what it wanted to write was not written."""


class JobFailed(WindlassError):
    """The job whose result was asked for has failed for good."""


class JobCancelled(WindlassError):
    """The job whose result was asked for was cancelled."""


class Conflict(WindlassError):
    """The job's state does not allow this, or its unique key belongs to another job."""


class StoreUnavailable(WindlassError):
    """The database cannot be reached; whether the last write was made may be unknown."""


class SchemaMismatch(WindlassError):
    """The schema in the database is missing, too old or too new for this version."""


class MissingExtra(WindlassError):
    """An optional dependency is not installed; the message names the extra that brings it."""

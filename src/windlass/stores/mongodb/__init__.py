"""MongoDB as a job queue: one collection for live and finished jobs, transactions where more than one write belongs
together, a change stream for wake-ups."""

from ...errors import MissingExtra

try:
    import pymongo.asynchronous.mongo_client as _needed  # noqa: F401 - the async client came with pymongo 4.13
except ImportError as error:
    raise MissingExtra("MongoDB needs pymongo 4.13 or newer: pip install 'windlass[mongodb]'") from error

from .store import MongoStore

__all__ = ["MongoStore"]

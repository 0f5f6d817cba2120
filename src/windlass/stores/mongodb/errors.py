"""The errors of pymongo, translated into those of Windlass."""

from __future__ import annotations

from bson.errors import BSONError
from pymongo.errors import (
    BulkWriteError,
    ConfigurationError,
    ConnectionFailure,
    DocumentTooLarge,
    InvalidOperation,
    OperationFailure,
    PyMongoError,
    ServerSelectionTimeoutError,
    WriteConcernError,
)

from ...errors import Conflict, InvalidInput, StoreUnavailable, WindlassError
from ...operation import Interrupted, Transient, Unwilling

RAISED = (PyMongoError, BSONError, OverflowError)

DUPLICATE_KEY, WRITE_CONFLICT, TOO_OLD, NO_INDEX = 11000, 112, 290, 27
NOT_THERE = (251, TOO_OLD)  # a transaction that the server has rolled back
COMMIT_UNKNOWN = "UnknownTransactionCommitResult"
OF_THE_CONTENT = (10334, 17419, 17420, 121, 257)  # a document or a transaction that is too large, or not valid
REFUSED_LOGIN = (13, 18, 8000)
NO_TRANSACTIONS = 20

STANDALONE = (
    "is a standalone server, and Windlass needs a replica set, because it uses transactions. "
    "One node is enough: start mongod with --replSet rs0 and run rs.initiate() once in mongosh"
)


class Duplicate(WindlassError):
    """A unique index refused a write outside a transaction: another client was quicker."""


class NoSuchIndex(WindlassError):
    """The index to drop does not exist: another client was quicker, or it never existed."""


def translate(error: Exception, place: str, *, in_transaction: bool) -> WindlassError:
    """The error to raise instead; `place` is the server's URL without the password."""
    match error:
        case PyMongoError() if error.has_error_label(COMMIT_UNKNOWN):
            return Interrupted(f"MongoDB at {place} did not say whether it has committed: {shorten(error)}")
        case ServerSelectionTimeoutError():  # labelled as transient in a transaction, but the driver has waited
            hint = " (its replica set is not initiated: run rs.initiate())" if "RSGhost" in str(error) else ""
            return StoreUnavailable(f"MongoDB at {place} cannot be reached{hint}: {shorten(error)}")
        case PyMongoError() if error.timeout:
            return Interrupted(f"MongoDB at {place} gave no answer in time: {shorten(error)}")
        case PyMongoError() if is_undone(error):
            return Transient(shorten(error))
        case ConnectionFailure():
            return Interrupted(f"the connection to MongoDB at {place} broke: {shorten(error)}")
        case WriteConcernError():
            return Interrupted(f"MongoDB at {place} cannot say whether a majority has it: {shorten(error)}")
        case DocumentTooLarge() | BSONError() | OverflowError():
            return InvalidInput(f"MongoDB cannot store this: {shorten(error)}")
        case InvalidOperation():  # of a client that was closed, a session that has ended
            return Unwilling(f"MongoDB at {place} cannot do this: {shorten(error)}")
        case ConfigurationError():
            return StoreUnavailable(f"MongoDB at {place} cannot be used: {shorten(error)}")
        case OperationFailure():
            return translate_refusal(error, place, in_transaction)
    return StoreUnavailable(f"MongoDB at {place}: {shorten(error)}")


def translate_refusal(error: OperationFailure, place: str, in_transaction: bool) -> WindlassError:
    codes = all_codes(error)
    if DUPLICATE_KEY in codes:
        if in_transaction and is_of_chain(error):  # another try would find it taken again
            return Conflict("another job has the next place of the chain already")
        return Transient(shorten(error)) if in_transaction else Duplicate(shorten(error))
    if NO_INDEX in codes:
        return NoSuchIndex(shorten(error))
    if WRITE_CONFLICT in codes:
        return Transient(shorten(error))
    if NO_TRANSACTIONS in codes:
        return StoreUnavailable(f"MongoDB at {place} {STANDALONE}")
    if codes.intersection(REFUSED_LOGIN):
        return Unwilling(f"MongoDB at {place} does not let us in: {shorten(error)}")
    if codes.intersection(OF_THE_CONTENT):
        return InvalidInput(f"MongoDB cannot store this: {shorten(error)}")
    return Unwilling(f"MongoDB at {place} refused: {shorten(error)}")


def is_undone(error: PyMongoError) -> bool:
    """Whether the server has rolled back the whole transaction, and another try may succeed."""
    match error:
        case PyMongoError() if error.has_error_label("TransientTransactionError"):
            return True
        case WriteConcernError():  # of a commit that was made
            return False
        case OperationFailure():  # the server aborts an old transaction, and does not label the operation's error
            return TOO_OLD in all_codes(error)
    return False


def is_of_chain(error: OperationFailure) -> bool:
    """Whether the duplicate is the index in a chain: only that unique index has this field."""
    details = error.details or {}
    return any("chain_index" in one.get("keyPattern", ()) for one in (details, *details.get("writeErrors", ())))


def all_codes(error: OperationFailure) -> set[int]:
    codes = {error.code or 0}
    if isinstance(error, BulkWriteError):
        codes |= {one.get("code", 0) for one in error.details.get("writeErrors", ())}
    return codes


def shorten(error: Exception) -> str:
    """The first part of the message: pymongo appends the whole topology, or the whole answer."""
    return str(error).partition(", full error:")[0].partition(", Topology Description:")[0][:500]

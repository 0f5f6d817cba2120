"""Sessions for handlers: each has a transaction, which is committed when the block ends."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.client_session import ClientSession
from pymongo.errors import InvalidOperation, OperationFailure, PyMongoError
from pymongo.read_concern import ReadConcern
from pymongo.write_concern import WriteConcern

from ...errors import Conflict, SchemaMismatch, StoreUnavailable
from ...operation import Transient
from .errors import NOT_THERE, all_codes, is_undone, translate

if TYPE_CHECKING:
    from .connections import MongoConnections

# As in the transactions of Windlass: reads see only durable data, writes are durable.
CONCERNS: dict[str, Any] = {"read_concern": ReadConcern("snapshot"), "write_concern": WriteConcern("majority")}


ENDED = (
    "the transaction of this block was ended in it, by a commit or abort of yours: the block itself ends it, together "
    "with the job. Raise to roll it back"
)
of_blocks: WeakKeyDictionary[Any, int] = WeakKeyDictionary()  # sessions, with the numbers of their transactions


def check(session: Any) -> None:
    """A block whose transaction was ended by hand would settle its job without the block's writes."""
    if session in of_blocks and (not session.in_transaction or _number(session) != of_blocks[session]):
        raise Conflict(ENDED)


def _number(session: Any) -> int:
    """The driver has no public name for it. Where it is not found, another transaction is not noticed."""
    return int(getattr(session, "_transaction_id", 0))


@contextmanager
def transaction(connections: MongoConnections) -> Iterator[ClientSession]:
    with connections.client().start_session() as session, session.start_transaction(**CONCERNS):
        of_blocks[session] = _number(session)
        yield session


@asynccontextmanager
async def atransaction(connections: MongoConnections) -> AsyncIterator[AsyncClientSession]:
    client = await connections.async_client()
    async with client.start_session() as session, await session.start_transaction(**CONCERNS):
        of_blocks[session] = _number(session)
        yield session


def is_transient(error: BaseException) -> bool:
    return isinstance(error, Transient) or (isinstance(error, PyMongoError) and is_undone(error))


def was_undone(error: BaseException) -> bool:
    """By an error that the handler has swallowed, or because the handler took too long."""
    return isinstance(error, OperationFailure) and bool(all_codes(error).intersection(NOT_THERE))


def is_unwilling(error: BaseException, *, committing: bool = False) -> bool:
    """Whether a statement of Windlass in a block, or its commit, failed for a reason that is not in the data. A session
    that the handler has ended itself is no such reason."""
    if isinstance(error, InvalidOperation) or isinstance(error.__cause__, InvalidOperation):
        return False
    if isinstance(error, PyMongoError):
        error = translate(error, "", in_transaction=True)
    return isinstance(error, StoreUnavailable | SchemaMismatch)

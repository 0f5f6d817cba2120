"""PostgreSQL's errors, translated into those of Windlass.

An error that the content of a row has caused is `InvalidInput`: to send the row again would not help. All other
refusals (read-only, no privileges, a full disk, a time-out, an internal error) have nothing to do with the data, and
are `Unwilling`: the caller waits, and tries again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg import errors as pg

from ...errors import InvalidInput, SchemaMismatch, StoreUnavailable, WindlassError
from ...operation import Interrupted, Transient, Unwilling
from ..urls import without_password

OF_THE_CONTENT = ("22", "23", "54")  # data exceptions, integrity, limits such as the size of an index row
BROKEN = ("08", "57P", "40003")  # the connection, the end of the server, a commit whose result is unknown
READ_ONLY = "25006"
# At a commit, errors of all other classes may come from a deferred constraint or trigger of the caller.
OF_THE_SERVER = ("08", "40003", "53", "55", "57", "58", "XX", READ_ONLY)


@contextmanager
def connecting(url: str) -> Iterator[None]:
    """Errors of a connection to this server that is being opened."""
    try:
        yield
    except psycopg.Error as error:
        raise translate(error, url) from error


def translate(error: psycopg.Error, url: str | None) -> WindlassError:
    state = error.sqlstate or ""
    if isinstance(error, pg.SerializationFailure | pg.DeadlockDetected):
        return Transient(str(error))
    if isinstance(error, pg.UndefinedTable | pg.UndefinedColumn | pg.InvalidSchemaName):
        return SchemaMismatch(f"{_first_line(error)}: run app.migrate(), or windlass migrate")
    if url is not None:
        return StoreUnavailable(f"PostgreSQL at {without_password(url)} cannot be reached: {_first_line(error)}")
    if state.startswith(BROKEN) or (not state and isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)):
        return Interrupted(f"the connection to PostgreSQL broke: {_first_line(error)}")
    if state.startswith(OF_THE_CONTENT) or (not state and isinstance(error, psycopg.DataError)):
        return InvalidInput(f"PostgreSQL cannot store this: {_first_line(error)}")
    return Unwilling(f"PostgreSQL refused{f' ({state})' if state else ''}: {_first_line(error)}")


def is_unwilling(error: BaseException, *, committing: bool = False) -> bool:
    """Whether a statement of Windlass in the transaction of a block failed for a reason that is not in the data."""
    if not isinstance(error, psycopg.Error):
        return isinstance(error, StoreUnavailable | SchemaMismatch)
    state = error.sqlstate or ""
    if not state:
        return isinstance(error, psycopg.OperationalError)
    if committing or state.startswith("25"):  # also if a handler was idle in its transaction for too long
        return state.startswith(OF_THE_SERVER)
    return isinstance(translate(error, None), StoreUnavailable | SchemaMismatch)


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]

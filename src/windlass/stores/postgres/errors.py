"""PostgreSQL's errors in our terms."""

from __future__ import annotations

from types import TracebackType

import psycopg
from psycopg import errors as pg

from ...errors import SchemaMismatch, StoreUnavailable
from ...operation import Interrupted, Transient
from ..urls import without_password


class mapped:
    """A context in which they are raised as ours. A class: as a generator it would cost each statement more."""

    __slots__ = ("url",)

    def __init__(self, url: str | None = None) -> None:
        self.url = url

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, pg.SerializationFailure | pg.DeadlockDetected):
            raise Transient(str(error)) from error
        if isinstance(error, pg.UndefinedTable | pg.UndefinedColumn | pg.InvalidSchemaName):
            raise SchemaMismatch(f"{_first_line(error)}: run app.migrate(), or windlass migrate") from error
        if isinstance(error, psycopg.OperationalError):
            if self.url is None:
                raise Interrupted(f"the connection to PostgreSQL broke: {_first_line(error)}") from error
            where = without_password(self.url)
            raise StoreUnavailable(f"PostgreSQL at {where} cannot be reached: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]

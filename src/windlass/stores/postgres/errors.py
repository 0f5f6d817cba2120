"""PostgreSQL's errors in our terms."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg import errors as pg

from ...errors import SchemaMismatch, StoreUnavailable
from ...operation import Interrupted, Transient
from ..urls import without_password


@contextmanager
def mapped(url: str | None = None) -> Iterator[None]:
    try:
        yield
    except (pg.SerializationFailure, pg.DeadlockDetected) as error:
        raise Transient(str(error)) from error
    except (pg.UndefinedTable, pg.UndefinedColumn, pg.InvalidSchemaName) as error:
        raise SchemaMismatch(f"{_first_line(error)}: run app.migrate(), or windlass migrate") from error
    except psycopg.OperationalError as error:
        if url is None:
            raise Interrupted(f"the connection to PostgreSQL broke: {_first_line(error)}") from error
        raise StoreUnavailable(
            f"PostgreSQL at {without_password(url)} cannot be reached: {_first_line(error)}"
        ) from error


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]

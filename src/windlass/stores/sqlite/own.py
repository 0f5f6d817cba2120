"""Steps on a connection of Windlass: it waits for locks, and translates errors."""

from __future__ import annotations

import random
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ...errors import InvalidInput, SchemaMismatch, StoreUnavailable
from ...operation import Begin, Commit, Rows, Statement, Step, Unwilling
from .link import SqliteLink

BUSY_SECONDS = 10.0
OF_THE_DATA = (sqlite3.DataError, sqlite3.IntegrityError, sqlite3.ProgrammingError, sqlite3.NotSupportedError)


class OwnLink(SqliteLink):
    def __init__(self, connection: sqlite3.Connection, path: str, patience: float = 0.0) -> None:
        super().__init__(connection)
        self.path, self.patience = path, patience

    def execute(self, step: Step) -> Rows:
        with mapped(self.path):
            if takes_lock(step):
                return patiently(lambda: super(OwnLink, self).execute(step), self.patience)
            return super().execute(step)


def patiently(ask: Callable[[], Rows], seconds: float) -> Rows:
    """SQLite's own wait checks the lock less and less often, so that the longest waiter has the smallest chance. Many
    short waits, one after the other, give each the same chance."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return ask()
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() >= deadline:
                raise
            time.sleep(random.uniform(0.001, 0.01))


def takes_lock(step: Step) -> bool:
    """Whether the step meets a lock before it has changed anything, so that it can be tried again."""
    if isinstance(step, Statement):
        return step.alone and len(step.query.statements) == 1 and len(step.each or (None,)) == 1
    return isinstance(step, Begin | Commit)


def is_unwilling(error: BaseException, *, committing: bool = False) -> bool:
    """Whether a statement of Windlass in a block failed for a reason that is not in the data: locked, read-only, full.
    The same at the commit: a constraint of the caller's tables is an IntegrityError there."""
    if isinstance(error, sqlite3.DatabaseError):
        return not isinstance(error, OF_THE_DATA)
    return isinstance(error, StoreUnavailable | SchemaMismatch)


@contextmanager
def mapped(path: str) -> Iterator[None]:
    try:
        yield
    except sqlite3.OperationalError as error:
        text = str(error)
        if "locked" in text or "busy" in text:
            raise StoreUnavailable(
                f"{path} was locked by someone else for {BUSY_SECONDS:.0f} s. If that is a transaction of your own, "
                "pass its connection (connection=…), so that the job becomes part of it; and run app.migrate() before "
                "it, since the schema is not made in it"
            ) from error
        if "no such table" in text or "no such column" in text:
            raise SchemaMismatch(f"{text} in {path}: run app.migrate(), or windlass migrate") from error
        folder = Path(path).parent
        raise Unwilling(f"{path}: {text if folder.exists() else f'there is no folder {folder}'}") from error
    except (sqlite3.DataError, sqlite3.IntegrityError) as error:
        raise InvalidInput(f"SQLite cannot store this: {error}") from error
    except sqlite3.Error as error:
        if "binding parameter" in str(error):
            raise InvalidInput(f"SQLite cannot store this: {error}") from error
        raise Unwilling(f"{path}: {error}") from error

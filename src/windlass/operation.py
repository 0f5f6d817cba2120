"""Operations: the logic of a store as generators, without I/O.

An operation yields steps, receives rows and returns a value. `drive` and `adrive` run the same generator on a sync or
an async connection, ours or the caller's. A wrapper of an operation (a transaction, a retry after a serialisation
failure) is a generator too, so that it is written once.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

from .errors import StoreUnavailable, WindlassError

if TYPE_CHECKING:
    from .stores.sql.query import Query

T = TypeVar("T")
Row: TypeAlias = Sequence[Any]
Rows: TypeAlias = Sequence[Any]


@dataclass(frozen=True, slots=True)
class Statement:
    """A query with its parameters. It runs once, or once for each item of `each`. `places` are positional parameters,
    which SQLite's lists use.

    `alone`: it may run in autocommit, without BEGIN and COMMIT. `patient`: it has no timeout, unlike all others.
    `seconds`: a shorter timeout, because others wait for it.
    """

    query: Query
    parameters: Mapping[str, Any] = field(default_factory=dict)
    each: Sequence[Mapping[str, Any]] | None = None
    alone: bool = False
    places: tuple[Any, ...] | None = None
    patient: bool = False
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Copy:
    """Insert many rows into a table, by the fastest way that the store has."""

    table: str
    columns: Sequence[str]
    types: Sequence[str]
    rows: Sequence[Row]
    fallback: Callable[[], Statement]
    alone: bool = False


@dataclass(frozen=True, slots=True)
class Request:
    """A call of a method of a MongoDB collection, as data."""

    collection: str
    method: str
    arguments: tuple[Any, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    alone: bool = False


@dataclass(frozen=True, slots=True)
class Begin:
    alone: bool = True


@dataclass(frozen=True, slots=True)
class Commit:
    alone: bool = True


@dataclass(frozen=True, slots=True)
class Rollback:
    alone: bool = True


@dataclass(frozen=True, slots=True)
class Current:
    """The next steps need READ COMMITTED: each statement must see all earlier commits. Our own transactions have it. A
    caller's transaction with a fixed snapshot is refused, and the error names `what`."""

    what: str
    alone: bool = True


@dataclass(frozen=True, slots=True)
class Sleep:
    seconds: float
    alone: bool = True


Step: TypeAlias = Statement | Copy | Request | Begin | Commit | Rollback | Current | Sleep
Operation: TypeAlias = Generator[Step, Rows, T]


class Connection(Protocol):
    """A connection that can execute the steps of an operation."""

    def execute(self, step: Step) -> Rows: ...


class AsyncConnection(Protocol):
    async def execute(self, step: Step) -> Rows: ...


class Transient(WindlassError):
    """A deadlock, a serialisation failure or a write conflict: the transaction must run again."""


class Interrupted(StoreUnavailable):
    """The connection broke before the answer came. The statement may have been executed or not."""


class Unwilling(StoreUnavailable):
    """The database answered, and refused for a reason outside the statement: it is read-only, its disk is full, a
    privilege is missing, or a lock timed out. Nothing was done. The same statement may succeed later."""


TRIES = 8


def transaction(operation: Operation[T]) -> Operation[T]:
    """Run the operation in one transaction. It begins before the first step that is not `alone`."""
    begun = False
    rows: Rows = ()
    try:
        step = next(operation)
        while True:
            if not begun and not step.alone:
                yield Begin()
                begun = True
            try:
                rows = yield step
            except Exception as error:
                step = operation.throw(error)
            else:
                step = operation.send(rows)
    except StopIteration as stop:
        if begun:
            yield Commit()
        return stop.value  # type: ignore[no-any-return]
    except Exception:
        if begun:
            yield Rollback()
        raise


def persistent(make: Callable[[], Operation[T]], rounds: int = 1) -> Operation[T]:
    """Run the operation in a transaction, and again from the start after a `Transient` error. The pauses double in each
    round. `Unwilling` after the last round."""
    for number in range(1, rounds * TRIES + 1):
        try:
            return (yield from transaction(make()))
        except Transient as error:
            if number == rounds * TRIES:
                raise Unwilling(f"other transactions are in the way, also after {number} tries: {error}") from error
            yield Sleep(random.uniform(0.5, 1.0) * 0.005 * 2 ** (number % TRIES or 1))
    raise AssertionError("unreachable")


def drive(operation: Operation[T], connection: Connection) -> T:
    """Execute each step on a connection. Only the operation itself begins or ends transactions."""
    try:
        step = next(operation)
        while True:
            try:
                rows = connection.execute(step)
            except Exception as error:
                step = operation.throw(error)
            else:
                step = operation.send(rows)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
    finally:
        operation.close()


async def adrive(operation: Operation[T], connection: AsyncConnection) -> T:
    """`drive`, awaited."""
    try:
        step = next(operation)
        while True:
            try:
                rows = await connection.execute(step)
            except Exception as error:
                step = operation.throw(error)
            else:
                step = operation.send(rows)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
    finally:
        operation.close()


def run(make: Callable[[], Operation[T]], connection: Connection) -> T:
    """Run one operation in one transaction, on our own connection."""
    return drive(persistent(make), connection)


async def arun(make: Callable[[], Operation[T]], connection: AsyncConnection) -> T:
    return await adrive(persistent(make), connection)

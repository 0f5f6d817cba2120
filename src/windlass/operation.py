"""The one seam between thinking and I/O.

An operation is a generator: it yields steps, receives rows, returns a value. The same generator is driven on a sync
or an async connection, ours or the caller's own. Whatever belongs around an operation (a transaction, another try
after a serialisation failure) is a generator too, so it is written once.
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
    """A query with its parameters: once, or once for each of `each`. SQLite's lists have theirs by place, not name.

    `alone` says that it is a transaction of its own: outside one, it needs no BEGIN and COMMIT around it. `patient`: it
    may take as long as it takes; the answer to any other comes soon or not at all. `seconds`: it is given up after so
    many already, because others wait for it.
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
    """Many rows into a table at once, by the quickest way the store has."""

    table: str
    columns: Sequence[str]
    types: Sequence[str]
    rows: Sequence[Row]
    fallback: Callable[[], Statement]
    alone: bool = False


@dataclass(frozen=True, slots=True)
class Request:
    """A call of a MongoDB collection's method, as data."""

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
    """What follows is exact only where each statement sees what others have committed before it. Our own transactions
    are so; one of the caller's that keeps to what it saw at first is refused, with `what` for the reason."""

    what: str
    alone: bool = True


@dataclass(frozen=True, slots=True)
class Sleep:
    seconds: float
    alone: bool = True


Step: TypeAlias = Statement | Copy | Request | Begin | Commit | Rollback | Current | Sleep
Operation: TypeAlias = Generator[Step, Rows, T]


class Connection(Protocol):
    """What an operation can be driven on."""

    def execute(self, step: Step) -> Rows: ...


class AsyncConnection(Protocol):
    async def execute(self, step: Step) -> Rows: ...


class Transient(WindlassError):
    """The database asked for another try: a deadlock, a serialisation failure, a write conflict."""


class Interrupted(StoreUnavailable):
    """The connection broke before the answer came: what was asked may have been done, or not."""


class Unwilling(StoreUnavailable):
    """The database is there, and refused for a reason that is not in what was sent: it is read-only, its disk is full,
    we lack a privilege, it gave up waiting. Nothing was done, and the same may succeed later."""


TRIES = 8


def transaction(operation: Operation[T]) -> Operation[T]:
    """Put the operation into one transaction, begun at the first step that is not a transaction of its own."""
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


def persistent(make: Callable[[], Operation[T]]) -> Operation[T]:
    """Once more, from the start, where the database asks for it."""
    for attempt in range(1, TRIES + 1):
        try:
            return (yield from transaction(make()))
        except Transient:
            if attempt == TRIES:
                raise
            yield Sleep(random.uniform(0.5, 1.0) * 0.005 * 2**attempt)
    raise AssertionError("unreachable")


def drive(operation: Operation[T], connection: Connection) -> T:
    """Carry out each step on a connection, as it stands: no transaction is begun or ended but by the operation."""
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
    """One operation, one transaction, on a connection of ours."""
    return drive(persistent(make), connection)


async def arun(make: Callable[[], Operation[T]], connection: AsyncConnection) -> T:
    return await adrive(persistent(make), connection)

"""Operations and flows: logic as generators that do no I/O, and what runs them, on a thread or in an event loop.

An operation yields steps for the database, receives rows and returns a value. It is one transaction. A wrapper of an
operation (a transaction, a retry after a serialisation failure) is a generator too, so that it is written once. A flow
is made of several operations and pauses. Each public method that does I/O exists twice, `name` and `aname`: both are
made here from one generator.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import wraps
from operator import methodcaller
from typing import TYPE_CHECKING, Any, Concatenate, NamedTuple, ParamSpec, Protocol, TypeAlias, TypeVar, cast

from .errors import InvalidInput, StoreUnavailable, WindlassError
from .policy import UNSET, Unset

if TYPE_CHECKING:
    from .stores.sql.query import Query

P = ParamSpec("P")
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
    """A call of a method of a MongoDB collection, as data. `database`: another than that of the queue."""

    collection: str
    method: str
    arguments: tuple[Any, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    alone: bool = False
    database: str | None = None


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
    return _drive(operation, connection.execute, Exception)


async def adrive(operation: Operation[T], connection: AsyncConnection) -> T:
    return await _adrive(operation, connection.execute, Exception)


def run(make: Callable[[], Operation[T]], connection: Connection) -> T:
    """Run one operation in one transaction, on our own connection."""
    return _drive(persistent(make), connection.execute, Exception)


async def arun(make: Callable[[], Operation[T]], connection: AsyncConnection) -> T:
    return await _adrive(persistent(make), connection.execute, Exception)


def _drive(steps: Generator[Any, Any, T], perform: Callable[[Any], Any], passed: type[BaseException]) -> T:
    """Perform each step and send its answer to the generator, or its error, if it is one of those that are `passed`. An
    operation that is cancelled makes no further step; a flow may have something to undo."""
    try:
        step = next(steps)
        while True:
            try:
                answer = perform(step)
            except passed as error:
                step = steps.throw(error)
            else:
                step = steps.send(answer)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
    finally:
        steps.close()


async def _adrive(
    steps: Generator[Any, Any, T], perform: Callable[[Any], Awaitable[Any]], passed: type[BaseException]
) -> T:
    """`_drive`, awaited. In Python 3.11 `asyncio.wait_for` sometimes loses a cancellation, and drivers use it: a
    cancellation that came during a step and was not raised is raised here."""
    task = cast("asyncio.Task[Any]", asyncio.current_task())
    try:
        step = next(steps)
        while True:
            try:
                cancellations = task.cancelling()
                answer = await perform(step)
                if task.cancelling() > cancellations:
                    raise asyncio.CancelledError
            except passed as error:
                step = steps.throw(error)
            else:
                step = steps.send(answer)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
    finally:
        steps.close()


# Flows


class Runs(Protocol):
    """Something that runs an operation in both ways: in its own transaction or, with `connection`, in the caller's."""

    def run_operation(self, make: Callable[[], Operation[T]], connection: Any = None) -> T: ...

    async def arun_operation(self, make: Callable[[], Operation[T]], connection: Any = None) -> T: ...


R = TypeVar("R", bound=Runs)


class FlowStep(Protocol):
    """One step of a flow."""

    def run(self, runs: Runs, /) -> Any: ...

    async def arun(self, runs: Runs, /) -> Any: ...


Flow: TypeAlias = Generator[FlowStep, Any, T]


class Transaction(NamedTuple):
    """One operation. `shielded`: it ends even if the task that awaits it is cancelled meanwhile."""

    make: Callable[[], Operation[Any]]
    connection: Any = None
    shielded: bool = False

    def run(self, runs: Runs, /) -> Any:
        return runs.run_operation(self.make, self.connection)

    async def arun(self, runs: Runs, /) -> Any:
        work = runs.arun_operation(self.make, self.connection)
        return await (asyncio.shield(work) if self.shielded else work)


class Pause(NamedTuple):
    seconds: float

    def run(self, runs: Runs, /) -> None:
        time.sleep(self.seconds)

    async def arun(self, runs: Runs, /) -> None:
        await asyncio.sleep(self.seconds)


def transact(make: Callable[[], Operation[T]], connection: Any = None, *, shielded: bool = False) -> Flow[T]:
    """The answer of one operation: `jobs = yield from transact(lambda: store.get(ids))`."""
    answer: T = yield Transaction(make, connection, shielded)
    return answer


def run_flow(flow: Flow[T], runs: Runs) -> T:
    return _drive(flow, methodcaller("run", runs), BaseException)


async def arun_flow(flow: Flow[T], runs: Runs) -> T:
    return await _adrive(flow, methodcaller("arun", runs), BaseException)


# Methods


def twins(
    operation: Callable[Concatenate[R, P], Operation[T]],
) -> tuple[Callable[Concatenate[R, P], T], Callable[Concatenate[R, P], Coroutine[Any, Any, T]]]:
    """`name, aname = twins(operation)`: one transaction of ours."""

    @wraps(operation)
    def sync(self: R, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.run_operation(lambda: operation(self, *args, **kwargs))

    @wraps(operation)
    async def asynchronous(self: R, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.arun_operation(lambda: operation(self, *args, **kwargs))

    return _named(operation, sync, asynchronous)


def joining_twins(
    operation: Callable[Concatenate[R, P], Operation[T]],
) -> tuple[Callable[Concatenate[R, P], T], Callable[Concatenate[R, P], Coroutine[Any, Any, T]]]:
    """`twins` for an operation that declares `connection: Any = UNSET`. With a connection it runs in the caller's
    transaction. The operation itself never sees the connection."""

    @wraps(operation)
    def sync(self: R, /, *args: P.args, **kwargs: P.kwargs) -> T:
        connection = check_connection(kwargs.pop("connection", UNSET))
        return self.run_operation(lambda: operation(self, *args, **kwargs), connection)

    @wraps(operation)
    async def asynchronous(self: R, /, *args: P.args, **kwargs: P.kwargs) -> T:
        connection = check_connection(kwargs.pop("connection", UNSET))
        return await self.arun_operation(lambda: operation(self, *args, **kwargs), connection)

    return _named(operation, sync, asynchronous)


def flow_twins(
    flow: Callable[Concatenate[R, P], Flow[T]],
) -> tuple[Callable[Concatenate[R, P], T], Callable[Concatenate[R, P], Coroutine[Any, Any, T]]]:
    """`name, aname = flow_twins(flow)`: several transactions."""

    @wraps(flow)
    def sync(self: R, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return run_flow(flow(self, *args, **kwargs), self)

    @wraps(flow)
    async def asynchronous(self: R, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await arun_flow(flow(self, *args, **kwargs), self)

    return _named(flow, sync, asynchronous)


S = TypeVar("S", bound=Callable[..., Any])
A = TypeVar("A", bound=Callable[..., Any])


def _named(generator: Callable[..., Any], sync: S, asynchronous: A) -> tuple[S, A]:
    """An underscore that kept the generator apart from the methods is not part of their names."""
    name = generator.__name__.strip("_")
    sync.__name__, asynchronous.__name__ = name, f"a{name}"
    return sync, asynchronous


def check_connection(connection: Any) -> Any:
    """Return the given connection, or None if the option was not given. An explicit None is an error."""
    if connection is None:
        raise InvalidInput(
            "connection=None: this is no connection, so the job would not be part of your transaction. If yours is not "
            "open yet (Django's is None until its first query), open it first. Without a transaction, leave "
            "connection= out"
        )
    return None if isinstance(connection, Unset) else connection

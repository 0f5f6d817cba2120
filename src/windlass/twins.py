"""Each public method that does I/O exists twice: `name` and `aname`. Both are made here from one generator.

An operation is one transaction (see `operation.py`). A flow is made of several: it yields steps, and each step can run
in both ways, so the decisions between the transactions are written once as well.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Generator
from functools import wraps
from typing import Any, Concatenate, NamedTuple, ParamSpec, Protocol, TypeAlias, TypeVar

from .operation import Operation
from .policy import UNSET, check_connection

P = ParamSpec("P")
T = TypeVar("T")


class Runs(Protocol):
    """Something that runs an operation in both ways: in its own transaction or, with `connection`, in the caller's."""

    def run_operation(self, make: Callable[[], Operation[T]], connection: Any = None) -> T: ...

    async def arun_operation(self, make: Callable[[], Operation[T]], connection: Any = None) -> T: ...


R = TypeVar("R", bound=Runs)


class Step(Protocol):
    """One step of a flow."""

    def run(self, runs: Runs, /) -> Any: ...

    async def arun(self, runs: Runs, /) -> Any: ...


Flow: TypeAlias = Generator[Step, Any, T]


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


def drive(flow: Flow[T], runs: Runs) -> T:
    """Run each step and send its answer, or its error, to the flow."""
    try:
        step = next(flow)
        while True:
            try:
                answer = step.run(runs)
            except BaseException as error:
                step = flow.throw(error)
            else:
                step = flow.send(answer)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
    finally:
        flow.close()


async def adrive(flow: Flow[T], runs: Runs) -> T:
    """`drive`, awaited."""
    try:
        step = next(flow)
        while True:
            try:
                answer = await step.arun(runs)
            except BaseException as error:
                step = flow.throw(error)
            else:
                step = flow.send(answer)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
    finally:
        flow.close()


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
        return drive(flow(self, *args, **kwargs), self)

    @wraps(flow)
    async def asynchronous(self: R, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await adrive(flow(self, *args, **kwargs), self)

    return _named(flow, sync, asynchronous)


S = TypeVar("S", bound=Callable[..., Any])
A = TypeVar("A", bound=Callable[..., Any])


def _named(generator: Callable[..., Any], sync: S, asynchronous: A) -> tuple[S, A]:
    """An underscore that kept the generator apart from the methods is not part of their names."""
    name = generator.__name__.strip("_")
    sync.__name__, asynchronous.__name__ = name, f"a{name}"
    return sync, asynchronous

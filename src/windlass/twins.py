"""A sync and an async method from one generator.

Every method that does I/O comes twice, `name` and `aname`. Both are made here from an operation: what is decided
around the store's own steps is written once.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from .operation import Operation
from .policy import UNSET

P = ParamSpec("P")
T = TypeVar("T")
T_co = TypeVar("T_co")


class Runs(Protocol):
    """Something that can drive an operation either way."""

    def run_operation(self, make: Callable[[], Operation[T]]) -> T: ...

    async def arun_operation(self, make: Callable[[], Operation[T]]) -> T: ...


class Joins(Runs, Protocol):
    """Something that can also drive an operation in the caller's transaction."""

    def run_joined(self, connection: Any, make: Callable[[], Operation[T]]) -> T: ...

    async def arun_joined(self, connection: Any, make: Callable[[], Operation[T]]) -> T: ...


R = TypeVar("R", bound=Runs)
J = TypeVar("J", bound=Joins)


def twins(
    operation: Callable[Concatenate[R, P], Operation[T]],
) -> tuple[Callable[Concatenate[R, P], T], Callable[Concatenate[R, P], Coroutine[Any, Any, T]]]:
    """`name, aname = twins(_name)`."""

    @wraps(operation)
    def sync(self: R, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.run_operation(lambda: operation(self, *args, **kwargs))

    @wraps(operation)
    async def asynchronous(self: R, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.arun_operation(lambda: operation(self, *args, **kwargs))

    name = operation.__name__.lstrip("_")
    sync.__name__, asynchronous.__name__ = name, f"a{name}"
    return sync, asynchronous


def joining_twins(
    operation: Callable[Concatenate[J, P], Operation[T]],
) -> tuple[Callable[Concatenate[J, P], T], Callable[Concatenate[J, P], Coroutine[Any, Any, T]]]:
    """`twins` for an operation that declares `connection: Any = UNSET`: where a caller gives one, the operation runs in
    that transaction. The operation itself never sees it."""

    @wraps(operation)
    def sync(self: J, /, *args: P.args, **kwargs: P.kwargs) -> T:
        connection = kwargs.pop("connection", UNSET)
        return self.run_joined(connection, lambda: operation(self, *args, **kwargs))

    @wraps(operation)
    async def asynchronous(self: J, /, *args: P.args, **kwargs: P.kwargs) -> T:
        connection = kwargs.pop("connection", UNSET)
        return await self.arun_joined(connection, lambda: operation(self, *args, **kwargs))

    name = operation.__name__.lstrip("_")
    sync.__name__, asynchronous.__name__ = name, f"a{name}"
    return sync, asynchronous

"""A sync and an async method from one generator.

Every method that does I/O comes twice, `name` and `aname`. Both are made here from an operation: what is decided
around the store's own steps is written once.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from .operation import Operation

P = ParamSpec("P")
T = TypeVar("T")
T_co = TypeVar("T_co")


class Runs(Protocol):
    """Something that can drive an operation either way."""

    def run_operation(self, make: Callable[[], Operation[T]]) -> T: ...

    async def arun_operation(self, make: Callable[[], Operation[T]]) -> T: ...


R = TypeVar("R", bound=Runs)


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

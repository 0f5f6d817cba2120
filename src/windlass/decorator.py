"""The types of `@app.task`: which function becomes which `Task[P, R]`.

The `Attempt` that a handler declares is no argument of the task. As first parameter it can be taken out of `P`. In any
other place types cannot express that, so there `P` is `...`: the arguments are checked when you enqueue, not before.
The same holds where the first parameter takes anything (`Any`, `object`).
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeAlias, TypeVar, overload

from .attempt import Attempt
from .backoff import Backoff
from .duration import Duration
from .policy import Unset
from .unique import Unique

if TYPE_CHECKING:
    from .task import Task

P = ParamSpec("P")
R = TypeVar("R")
T_co = TypeVar("T_co", covariant=True)

Async: TypeAlias = Coroutine[Any, Any, R]
Errors: TypeAlias = type[BaseException] | tuple[type[BaseException], ...]


class Something:
    """Only a parameter that takes anything takes this."""


class Keyword0(Protocol[T_co]):
    """A function that takes its Attempt by the name `attempt`, wherever that stands."""

    def __call__(self, *, attempt: Attempt) -> T_co: ...


class Keyword1(Protocol[T_co]):
    def __call__(self, a: Any, /, *, attempt: Attempt) -> T_co: ...


class Keyword2(Protocol[T_co]):
    def __call__(self, a: Any, b: Any, /, *, attempt: Attempt) -> T_co: ...


class Keyword3(Protocol[T_co]):
    def __call__(self, a: Any, b: Any, c: Any, /, *, attempt: Attempt) -> T_co: ...


class Decorator(Protocol):
    """`@app.task` over a function, async or not; or `@app.task(…)`, with options."""

    @overload
    def __call__(self, function: Callable[Concatenate[Something, ...], Async[R]], /) -> Task[..., R, Async[R]]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Something, ...], R], /) -> Task[..., R, R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Attempt, P], Async[R]], /) -> Task[P, R, Async[R]]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Attempt, P], R], /) -> Task[P, R, R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Any, Attempt, ...], Async[R]], /) -> Task[..., R, Async[R]]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Any, Attempt, ...], R], /) -> Task[..., R, R]: ...
    @overload
    def __call__(
        self, function: Callable[Concatenate[Any, Any, Attempt, ...], Async[R]], /
    ) -> Task[..., R, Async[R]]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Any, Any, Attempt, ...], R], /) -> Task[..., R, R]: ...
    @overload
    def __call__(
        self, function: Callable[Concatenate[Any, Any, Any, Attempt, ...], Async[R]], /
    ) -> Task[..., R, Async[R]]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Any, Any, Any, Attempt, ...], R], /) -> Task[..., R, R]: ...
    @overload
    def __call__(self, function: Keyword0[Async[R]], /) -> Task[..., R, Async[R]]: ...
    @overload
    def __call__(self, function: Keyword0[R], /) -> Task[..., R, R]: ...
    @overload
    def __call__(self, function: Keyword1[Async[R]], /) -> Task[..., R, Async[R]]: ...
    @overload
    def __call__(self, function: Keyword1[R], /) -> Task[..., R, R]: ...
    @overload
    def __call__(self, function: Keyword2[Async[R]], /) -> Task[..., R, Async[R]]: ...
    @overload
    def __call__(self, function: Keyword2[R], /) -> Task[..., R, R]: ...
    @overload
    def __call__(self, function: Keyword3[Async[R]], /) -> Task[..., R, Async[R]]: ...
    @overload
    def __call__(self, function: Keyword3[R], /) -> Task[..., R, R]: ...
    @overload
    def __call__(self, function: Callable[P, Async[R]], /) -> Task[P, R, Async[R]]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Task[P, R, R]: ...
    @overload
    def __call__(
        self,
        name: str | None = None,
        *,
        queue: str = ...,
        priority: int = ...,
        max_attempts: int | Unset | None = ...,
        backoff: Backoff | Duration | Unset = ...,
        timeout: Duration | None = ...,
        lease: Duration | Unset = ...,
        keep: Duration | Unset | None = ...,
        isolation: str | None = ...,
        redact: Sequence[str] = ...,
        unique: Unique | str | Callable[..., Unique | str | None] | None = ...,
        order_key: str | Callable[..., str | None] | None = ...,
        labels: Mapping[str, str] | Callable[..., Mapping[str, str] | None] | None = ...,
        retry_on: Errors | None = ...,
        fail_on: Errors | None = ...,
    ) -> Decorator: ...

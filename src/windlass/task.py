"""A task: a function that can be called later.

The function stays callable. `using(…)` gives the same task with options for the jobs that are made through it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, overload

from .attempt import Attempt
from .call import NO_OPTIONS, Call, Options
from .errors import InvalidInput
from .job import Job
from .outcome import Continue
from .policy import UNSET, Policy, check_connection
from .signature import Signature

if TYPE_CHECKING:
    from .app import Windlass

P = ParamSpec("P")
R = TypeVar("R")


class Decorator(Protocol):
    """`@app.task(…)`: the parameter that the worker injects is no argument of the task's."""

    @overload
    def __call__(self, function: Callable[Concatenate[Attempt, P], R], /) -> Task[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Task[P, R]: ...


class Task(Generic[P, R]):
    """What `@app.task` makes of a function."""

    def __init__(
        self, app: Windlass, function: Callable[..., R], name: str, *, queue: str, priority: int, policy: Policy
    ) -> None:
        self.app, self.function, self.name = app, function, name
        self.queue, self.priority, self.policy = queue, priority, policy
        self.isolation: str | None = None
        self.signature = Signature(function, Attempt, name=name, limit=app.max_payload, control=(Continue,))
        self._options, self._connection = NO_OPTIONS, UNSET
        update_wrapper(self, function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function here and now."""
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<Task {self.name}>"

    def using(self, *, connection: Any = UNSET, **options: Any) -> Task[P, R]:
        """The same task, with these options for its jobs."""
        twin: Task[P, R] = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)
        twin._options = self._options.updated(options)
        if check_connection(connection) is not None:
            twin._connection = connection
        return twin

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Call:
        """A call that is not sent yet."""
        if self._connection is not UNSET:
            raise InvalidInput("a call has no connection: give it to whoever sends it, enqueue_many(…, connection=…)")
        return self._call(args, kwargs)

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
        return self.call_with(self.signature.encode_arguments(args, kwargs))

    def call_object(self, arguments: Mapping[str, Any], options: Options) -> Call:
        """The same from arguments by name, as `app.enqueue` is given them."""
        return self.call_with(self.signature.encode_object(arguments), options)

    def call_with(self, input: str, options: Options | None = None) -> Call:
        return Call(
            type=self.name,
            input=input,
            queue=self.queue,
            priority=self.priority,
            policy=self.policy,
            options=self._options if options is None else options,
        )

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job:
        """Have it called later; the job that will do it."""
        return self.app.enqueue_many([self._call(args, kwargs)], connection=self._connection)[0]

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job:
        return (await self.app.aenqueue_many([self._call(args, kwargs)], connection=self._connection))[0]

"""A task: a function that can be called later.

The function stays callable. `using(…)` gives the same task with options for the jobs that are made through it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from copy import copy
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, Generic, ParamSpec
from weakref import WeakSet

from .attempt import Attempt
from .call import NO_OPTIONS, Call, Options
from .decorator import Decorator as Decorator
from .derived import Derived
from .detached import DetachedAttempt
from .errors import InvalidInput, WindlassError
from .generics import C_co, R_co
from .job import Job
from .operation import check_connection
from .outcome import Continue
from .policy import UNSET, Policy
from .signature import Signature
from .task_options import TaskOptions

if TYPE_CHECKING:
    from .app import Windlass

P = ParamSpec("P")

NONE_CHOSEN: AbstractSet[str] = frozenset()


class Task(Generic[P, R_co, C_co]):
    """A function under a name: `Task[P, R]` takes the arguments P, and its handler returns R."""

    def __init__(self, function: Callable[..., C_co], name: str, options: TaskOptions) -> None:
        self.function, self.name = function, name
        self.queue, self.priority, self.isolation = options.queue, options.priority, options.isolation
        self.policy, self.retry_rules = options.policy(Policy()), options.retry_rules()
        self.signature = Signature(function, Attempt, name=name, control=(Continue,))
        options.check_redacted(self.signature)
        self._derived = (
            Derived(self.signature, unique=options.unique, order_key=options.order_key, labels=options.labels)
            if options.has_derived()
            else None
        )
        self._settings = options
        self._app: Windlass | None = None
        self.is_collected = False  # one of a `Tasks`; an app that includes those has a copy, which `is_included`
        self.is_included = False
        self._options, self._chosen, self._connection = NO_OPTIONS, NONE_CHOSEN, UNSET
        self._twins: WeakSet[Task[P, R_co, C_co]] = WeakSet()
        update_wrapper(self, function)

    if not TYPE_CHECKING:

        def __class_getitem__(cls, parameters: Any) -> Any:
            """`Task[P, R]`: the third parameter, the type of a plain call, is for type checkers alone."""
            if isinstance(parameters, tuple) and len(parameters) == 2:
                parameters = (*parameters, Any)
            return super().__class_getitem__(parameters)

    @property
    def app(self) -> Windlass:
        if self._app is None:
            raise WindlassError(f"{self.name} belongs to no app yet: app.include(tasks) makes it one of an app's tasks")
        return self._app

    def bind(self, app: Windlass, name: str) -> None:
        """From here on it is a task of this app, under this name."""
        for task in (self, *self._twins):
            task._app, task.name, task.policy = app, name, self._settings.policy(app.default_policy)
            task.signature = copy(self.signature)
            task.signature.name, task.signature.limit = name, app.max_payload

    def copy_for(self, app: Windlass, name: str) -> Task[P, R_co, C_co]:
        """The same task as one of this app, whichever app the original is bound to later."""
        twin = self._twin()
        twin._twins, twin.is_collected, twin.is_included = WeakSet(), False, True
        twin.bind(app, name)
        return twin

    def _twin(self) -> Task[P, R_co, C_co]:
        twin: Task[P, R_co, C_co] = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)
        return twin

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> C_co:
        """Call the function here and now; where it takes an `Attempt` and is given none, with one that has no job."""
        injected = self.signature.injected_name
        if injected is None or injected in kwargs or any(isinstance(one, Attempt) for one in args):
            return self.function(*args, **kwargs)
        arguments = self.signature.bind(args, kwargs)
        arguments[injected] = DetachedAttempt.of(self._app, self.name)
        return self.function(**arguments)

    def __repr__(self) -> str:
        return f"<Task {self.name}>"

    def using(self, *, connection: Any = UNSET, **options: Any) -> Task[P, R_co, C_co]:
        """The same task, with these options for its jobs."""
        twin = self._twin()
        twin._options, twin._chosen = self._options.updated(options), self._chosen | options.keys()
        if check_connection(connection) is not None:
            twin._connection = connection
        if self.is_collected:
            self._twins.add(twin)
        return twin

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Call[R_co]:
        """A call for later: for `enqueue_many`, `after=`, `Continue` or `schedule`."""
        if self._connection is not UNSET:
            raise InvalidInput("a call has no connection: give it to enqueue_many(…, connection=…)")
        return self._call(args, kwargs)

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call[R_co]:
        if self._app is None:
            self.app  # noqa: B018 - raises
        try:
            input = self.signature.encode_arguments(args, kwargs)
        except InvalidInput as error:
            options = [name for name in kwargs if name in Options.__struct_fields__ and not self.signature.takes(name)]
            if not options:
                raise
            hint = f"an option of a job is given by {self.name}.using({options[0]}=…).enqueue(…)"
            raise InvalidInput(f"{error}; {hint}") from None
        return self._call_with(input, self._options, self._chosen)

    def call_object(self, arguments: Mapping[str, Any], options: Options, chosen: AbstractSet[str]) -> Call[R_co]:
        """The same from arguments by name, as `app.enqueue` takes them; `chosen` are the options that were given."""
        return self._call_with(self.signature.encode_object(arguments), options, chosen)

    def _call_with(self, input: str, options: Options, chosen: AbstractSet[str]) -> Call[R_co]:
        if self._derived is not None:
            options = self._derived.apply(options, input, chosen)
        return Call(
            type=self.name, input=input, queue=self.queue, priority=self.priority, policy=self.policy, options=options
        )

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job[R_co]:
        """Enqueue a call with these arguments: its job."""
        return self.app.enqueue_many([self._call(args, kwargs)], connection=self._connection)[0]

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job[R_co]:
        return (await self.app.aenqueue_many([self._call(args, kwargs)], connection=self._connection))[0]

"""How a handler is called, with its middleware around it.

Async handlers run in the loop, in the slot's own task; sync ones in threads; those of `isolation="process"` in child
processes.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any

from ..app import Windlass
from ..attempt import Attempt
from ..outcome import Snooze
from ..task import Task
from .processes import ChildProcesses
from .threads import Threads

THREADLESS_SECONDS = 1.0  # until a handler is tried again for which the system had no thread
UNREADABLE_SECONDS = 60.0  # until a job that this version cannot run is tried again, perhaps by a newer one

Handler = Callable[[Attempt, dict[str, Any]], Awaitable[Any]]


class Handlers:
    def __init__(self, app: Windlass) -> None:
        self.app = app
        self.threads = Threads()
        self.processes = ChildProcesses(self.threads)
        self.known: dict[str, tuple[Task[..., Any], Handler]] = {}

    def find(self, name: str) -> tuple[Task[..., Any], Handler]:
        """When its first job comes: a task may be registered while the worker runs, and is claimed from then on."""
        task = self.app.tasks.get(name)
        if task is None:
            raise Snooze(f"this worker has no task {name!r}", after=UNREADABLE_SECONDS)
        self.known[name] = task, self._make(task)
        return self.known[name]

    def _make(self, task: Task[..., Any]) -> Handler:
        if task.isolation == "process":
            call = self._in_process(task)
        else:
            call = self._in_loop(task) if inspect.iscoroutinefunction(task.function) else self._in_thread(task)
        for middleware in reversed(self.app.middlewares):
            call = _around(middleware, call)
        return call

    def _in_loop(self, task: Task[..., Any]) -> Handler:
        function, injected = task.function, task.signature.injected_name

        def in_loop(attempt: Attempt, arguments: dict[str, Any]) -> Awaitable[Any]:  # not async: a coroutine less
            if injected:
                arguments[injected] = attempt
            if attempt.begin is None and attempt.entering is None:
                return function(**arguments)  # type: ignore[no-any-return]
            return begun(attempt, arguments)

        async def begun(attempt: Attempt, arguments: dict[str, Any]) -> Any:
            if attempt.begin is not None:
                await attempt.begin()
            if attempt.entering is not None:
                attempt.entering(False)
            return await function(**arguments)

        return in_loop

    def _in_thread(self, task: Task[..., Any]) -> Handler:
        function, injected = task.function, task.signature.injected_name

        async def in_thread(attempt: Attempt, arguments: dict[str, Any]) -> Any:
            if injected:
                arguments[injected] = attempt
            await self._begin_in_thread(attempt)
            return await self.threads.run(attempt, _entered(attempt, lambda: function(**arguments)))

        return in_thread

    async def _begin_in_thread(self, attempt: Attempt) -> None:
        """First a thread, then the mark of a last attempt: without a thread the attempt has not begun."""
        try:
            self.threads.reserve()
        except RuntimeError as error:
            raise Snooze(f"no thread can be started: {error}", after=THREADLESS_SECONDS) from error
        try:
            if attempt.begin is not None:
                await attempt.begin()
        except BaseException:
            self.threads.unreserve()
            raise

    def _in_process(self, task: Task[..., Any]) -> Handler:
        async def in_process(attempt: Attempt, arguments: dict[str, Any]) -> Any:
            return await self.processes.run(attempt, task)

        return in_process

    def close(self) -> None:
        self.threads.close()
        self.processes.close()


def _entered(attempt: Attempt, function: Callable[[], Any]) -> Callable[[], Any]:
    """The call. Before it, its thread says that it has begun, if that is waited for."""
    entering = attempt.entering
    return function if entering is None else lambda: (entering(True), function())[1]


def _around(middleware: Callable[..., Any], call: Handler) -> Handler:
    async def wrapped(attempt: Attempt, arguments: dict[str, Any]) -> Any:
        return await middleware(attempt, lambda: call(attempt, arguments))

    return wrapped

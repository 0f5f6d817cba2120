"""`Tasks`: tasks of a module that knows no app. `app.include(tasks)` makes them tasks of an app."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from .declare import task_decorator
from .decorator import Decorator
from .errors import InvalidInput
from .task import Task

if TYPE_CHECKING:
    from .app import Windlass


class Tasks:
    """A collection of tasks. A task that is declared after `app.include` is included too.

    Several apps may include the same tasks, each under its own names. The tasks that the module holds enqueue through
    the app that was the last to include them; `app.tasks[name]` always belongs to that app.
    """

    def __init__(self) -> None:
        self.tasks: dict[str, Task[..., Any]] = {}
        self._prefixes: WeakKeyDictionary[Windlass, list[str]] = WeakKeyDictionary()

    def __repr__(self) -> str:
        return f"<Tasks {', '.join(self.tasks)}>"

    @property
    def task(self) -> Decorator:
        """Make a task of a function: `@tasks.task`, or `@tasks.task(queue="mail")`, with the options of `@app.task`."""
        return task_decorator(self._declare)

    def _declare(self, task: Task[..., Any]) -> None:
        if task.name in self.tasks:
            raise InvalidInput(f"there is a task {task.name!r} already: give this one another name, @tasks.task('…')")
        title, task.is_collected = task.name, True
        for app, prefixes in self._prefixes.items():
            _include(app, {prefix + title: task for prefix in prefixes})
        self.tasks[title] = task

    def include_in(self, app: Windlass, prefix: str) -> None:
        _include(app, {prefix + title: task for title, task in self.tasks.items()})
        self._prefixes.setdefault(app, []).append(prefix)


def _include(app: Windlass, tasks: Mapping[str, Task[..., Any]]) -> None:
    """The app gets copies, so that they stay bound to it. The originals are bound to it as well."""
    app.add_tasks({name: task.copy_for(app, name) for name, task in tasks.items()})
    for name, task in tasks.items():
        task.bind(app, name)

"""`Tasks`: tasks of a module that knows no app. `app.include(tasks)` makes them tasks of an app."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from .declaring import Declaring
from .errors import InvalidInput
from .task import Task

if TYPE_CHECKING:
    from .app import Windlass


class Tasks(Declaring):
    """A collection of tasks: `@tasks.task(…)` as `@app.task(…)`. What is declared after `app.include` is included too.

    Several apps may include the same tasks, each under its own names. The tasks that the module holds enqueue through
    the app that was the last to include them; `app.tasks[name]` is always that app's own.
    """

    def __init__(self) -> None:
        self.tasks: dict[str, Task[..., Any]] = {}
        self._prefixes: WeakKeyDictionary[Windlass, list[str]] = WeakKeyDictionary()

    def __repr__(self) -> str:
        return f"<Tasks {', '.join(self.tasks)}>"

    def _declare_task(self, task: Task[..., Any]) -> None:
        if task.name in self.tasks:
            raise InvalidInput(f"there is a task {task.name!r} already: give this one another name, @tasks.task('…')")
        title, task.is_collected = task.name, True
        for app, prefixes in self._prefixes.items():
            app.add_tasks({prefix + title: task for prefix in prefixes})
        self.tasks[title] = task

    def include_in(self, app: Windlass, prefix: str) -> None:
        app.add_tasks({prefix + title: task for title, task in self.tasks.items()})
        self._prefixes.setdefault(app, []).append(prefix)

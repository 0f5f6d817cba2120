"""Declare tasks: `@app.task` and `@tasks.task` alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from .backoff import Backoff
from .call import check_name
from .decorator import Decorator, Errors
from .duration import Duration
from .policy import UNSET, Unset
from .task import Task
from .task_options import TaskOptions
from .unique import Unique


def task_decorator(register: Callable[[Task[..., Any]], None]) -> Decorator:
    """The decorator whose tasks are passed to `register`."""

    def task(
        name: Any = None,
        *,
        queue: str = "default",
        priority: int = 0,
        max_attempts: int | Unset | None = UNSET,
        backoff: Backoff | Duration | Unset = UNSET,
        timeout: Duration | None = None,
        lease: Duration | Unset = UNSET,
        keep: Duration | Unset | None = UNSET,
        isolation: str | None = None,
        redact: Sequence[str] = (),
        unique: Unique | str | Callable[..., Unique | str | None] | None = None,
        order_key: str | Callable[..., str | None] | None = None,
        labels: Mapping[str, str] | Callable[..., Mapping[str, str] | None] | None = None,
        retry_on: Errors | None = None,
        fail_on: Errors | None = None,
        **unknown: Any,
    ) -> Any:
        """Make a task of a function: `@app.task`, or `@app.task(queue="mail", max_attempts=5)`.

        If you leave out `max_attempts`, `backoff`, `lease` or `keep`, the app's `defaults` hold: unless they say
        otherwise, 20 attempts, an exponential backoff, 60 s and seven days. `unique`, `order_key` and `labels` hold for
        each job of the task; each may be a function of the arguments. `retry_on` and `fail_on` name exception types:
        only the former are retried, the latter never.
        """
        if unknown:
            known = ", ".join(sorted(TaskOptions.__struct_fields__))
            raise TypeError(f"unknown option {', '.join(sorted(unknown))} of a task; there are: {known}")
        if callable(name):
            return task()(name)
        options = TaskOptions(
            queue=queue, priority=priority, max_attempts=max_attempts, backoff=backoff, timeout=timeout, lease=lease,
            keep=keep, isolation=isolation, redact=redact, unique=unique, order_key=order_key, labels=labels,
            retry_on=retry_on, fail_on=fail_on,
        )  # fmt: skip

        def declare(function: Callable[..., Any]) -> Task[..., Any]:
            title = check_name("task", name or getattr(function, "__name__", ""))
            made: Task[..., Any] = Task(function, title, options)
            register(made)
            return made

        return declare

    return cast(Decorator, task)

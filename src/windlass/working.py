"""Starting workers, and what is told of their jobs: middleware and hooks."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast
from weakref import finalize

from .block import joined
from .duration import Duration
from .errors import InvalidInput
from .job import Job
from .logs import Log
from .stores.sql.commits import after_commit
from .stores.store import Store

if TYPE_CHECKING:
    from .app import Windlass
    from .worker.events import Events
    from .worker.worker import Worker

F = TypeVar("F", bound=Callable[..., Any])

Queues: TypeAlias = Sequence[str] | Mapping[str, int | None]  # by name, or each with how many of it at once

log = Log("windlass.hooks")

EVENTS = ("enqueued", "started", "completed", "failed", "cancelled", "retried", "snoozed", "rescued", "expired")


class Working:
    """Part of `Windlass`."""

    store: Store
    _telling: dict[int, Events]  # of what is enqueued here, by process
    middlewares: list[Callable[..., Any]]
    hooks: dict[str, list[Callable[[Any], Any]]]

    def worker(
        self, queues: Queues | None = None, concurrency: int = 50, *, poll_interval: Duration = 5,
        rescue_interval: Duration = 5, grace: Duration = 30, until_idle: bool = False, max_jobs: int | None = None,
    ) -> Worker:  # fmt: skip
        """A worker for your own event loop: `async with app.worker(["mail"]): …`, or `await app.worker().run()`.

        `queues`: all, those named, or `{"mail": 10}`, so many of it at once. `grace`: how long running jobs may take to
        end when it is stopped. It ends by itself when nothing is due (`until_idle`), or after so many (`max_jobs`).
        """
        from .worker.worker import Worker

        return Worker(
            cast("Windlass", self), queues, concurrency, poll_interval=poll_interval, rescue_interval=rescue_interval,
            grace=grace, until_idle=until_idle, max_jobs=max_jobs,
        )  # fmt: skip

    def run_worker(
        self, queues: Queues | None = None, concurrency: int = 50, *, poll_interval: Duration = 5,
        rescue_interval: Duration = 5, grace: Duration = 30, until_idle: bool = False, max_jobs: int | None = None,
    ) -> int:  # fmt: skip
        """Work, in an event loop of its own, until stopped by a signal (or idle): how many jobs were run."""
        from .worker.alone import run_alone

        worker = self.worker(
            queues, concurrency, poll_interval=poll_interval, rescue_interval=rescue_interval, grace=grace,
            until_idle=until_idle, max_jobs=max_jobs,
        )  # fmt: skip

        async def work() -> int:
            try:
                return await worker.run()
            finally:
                await self.store.connections.aclose_loop()

        return run_alone(worker, work)

    async def arun_worker(
        self, queues: Queues | None = None, concurrency: int = 50, *, poll_interval: Duration = 5,
        rescue_interval: Duration = 5, grace: Duration = 30, until_idle: bool = False, max_jobs: int | None = None,
    ) -> int:  # fmt: skip
        worker = self.worker(
            queues, concurrency, poll_interval=poll_interval, rescue_interval=rescue_interval, grace=grace,
            until_idle=until_idle, max_jobs=max_jobs,
        )  # fmt: skip
        return await worker.run()

    def middleware(self, function: F) -> F:
        """Put `async def around(attempt, call_next)` around each attempt; `await call_next()` runs the handler."""
        self.middlewares.append(function)
        return function

    def on(self, event: str) -> Callable[[F], F]:
        """Be told, after the fact: `@app.on("failed")`. A worker tells of the jobs that it runs (started, completed,
        failed, cancelled, retried, snoozed) or tidies up (rescued, expired); an app tells of those that it has
        enqueued, after the commit (enqueued)."""
        if event not in EVENTS:
            raise InvalidInput(f"there is no event {event!r}; there are: {', '.join(EVENTS)}")

        def register(function: F) -> F:
            self.hooks.setdefault(event, []).append(function)
            return function

        return register

    def tell_enqueued(self, jobs: Sequence[Job], connection: Any = None) -> None:
        """To the hooks for "enqueued", once these jobs are committed; never, where that cannot be known."""
        created = [job for job in jobs if job.created]
        if not created or "enqueued" not in self.hooks:
            return
        block = joined.get()
        if connection is None:
            self._call_hooks(created)
        elif block is not None and block.connection is connection:
            block.after_commit.append(lambda: self._call_hooks(created))
        else:
            after_commit(connection, lambda: self._call_hooks(created))

    def _call_hooks(self, jobs: Sequence[Job]) -> None:
        from .worker.events import Events

        process = os.getpid()  # in a fork nothing is left of the thread that the parent had
        events = self._telling.get(process)
        if events is None:
            events = self._telling.setdefault(process, Events(cast("Windlass", self)))
            finalize(self, _finish, process, events)  # also at the end of the program, so that its hooks are called
        try:
            events.enqueued(jobs)
        except RuntimeError as error:  # no thread can be started; the jobs are committed all the same
            log.warning("hooks for enqueued were not called: %s", error)

    def _stop_telling(self) -> None:
        for process, events in self._telling.items():
            _finish(process, events)


def _finish(process: int, events: Events) -> None:
    if process == os.getpid():
        events.finish()

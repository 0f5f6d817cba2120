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
from .stores.sql.commits import after_commit
from .stores.store import Store

if TYPE_CHECKING:
    from .app import Windlass
    from .worker.events import Events
    from .worker.worker import Worker

F = TypeVar("F", bound=Callable[..., Any])

Queues: TypeAlias = Sequence[str] | Mapping[str, int | None]  # by name, or each with how many of it at once

EVENTS = ("enqueued", "started", "completed", "failed", "cancelled", "retried", "snoozed", "rescued", "expired")


class Working:
    """Part of `Windlass`."""

    store: Store
    _telling: tuple[int, Events] | None = None  # of what is enqueued here: in which process, and its thread
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
            self._events().enqueued(created)
        elif block is not None and block.connection is connection:
            block.after_commit.append(lambda: self._events().enqueued(created))
        else:
            after_commit(connection, lambda: self._events().enqueued(created))

    def _events(self) -> Events:
        """Those of this process: in a fork nothing is left of the thread that the parent had."""
        from .worker.events import Events

        if self._telling is None or self._telling[0] != os.getpid():
            events = Events(cast("Windlass", self))
            self._telling = os.getpid(), events
            finalize(self, events.finish)  # also at the end of the program: what was told is heard
        return self._telling[1]

    def _stop_telling(self) -> None:
        if self._telling is not None and self._telling[0] == os.getpid():
            self._telling[1].finish()

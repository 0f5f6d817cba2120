"""Starting workers, and what is told of their jobs: middleware and hooks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

from .duration import Duration
from .errors import InvalidInput
from .stores.store import Store

if TYPE_CHECKING:
    from .app import Windlass
    from .worker.worker import Worker

F = TypeVar("F", bound=Callable[..., Any])

Queues: TypeAlias = Sequence[str] | Mapping[str, int | None]  # by name, or each with how many of it at once

EVENTS = ("enqueued", "started", "completed", "failed", "cancelled", "retried", "snoozed", "rescued", "expired")


class Working:
    """Part of `Windlass`."""

    store: Store
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

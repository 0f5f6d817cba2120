"""Hooks for "enqueued": the app calls them after the commit. The hooks for all other events belong to a worker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast
from weakref import finalize

from .block import joined
from .events import EVENTS as EVENTS
from .forks import PerProcess
from .job import Job
from .stores.sql.commits import after_commit

if TYPE_CHECKING:
    from .app import Windlass
    from .worker.events import Events

Hooks: TypeAlias = dict[str, list[Callable[[Any], Any]]]


class EnqueuedHooks:
    """Calls the hooks in a thread of its own, which each process starts when it needs it."""

    def __init__(self, hooks: Hooks) -> None:
        self.hooks = hooks
        self._events = PerProcess(partial(_make_events, hooks))
        finalize(self, _finish, self._events)  # also at the end of the program, so that no hook is left out

    def tell(self, jobs: Sequence[Job], connection: Any = None) -> None:
        """Call the hooks once these jobs are committed; never, if that cannot be known."""
        created = [job for job in jobs if job.created]
        if not created or "enqueued" not in self.hooks:
            return
        block = joined.get()
        if connection is None:
            self._call(created)
        elif block is not None and block.connection is connection:
            block.after_commit.append(lambda: self._call(created))
        else:
            after_commit(connection, lambda: self._call(created))

    def _call(self, jobs: Sequence[Job]) -> None:
        self._events.get().enqueued(jobs)

    def finish(self) -> None:
        """Wait until the hooks have been called, and end the thread."""
        _finish(self._events)


class _HooksOnly(NamedTuple):
    """All of an app that `Events` needs. With the app itself, its hooks would keep it alive."""

    hooks: Hooks


def _make_events(hooks: Hooks) -> Events:
    from .worker.events import Events

    return Events(cast("Windlass", _HooksOnly(hooks)))


def _finish(events: PerProcess[Events]) -> None:
    if (own := events.existing()) is not None:
        own.finish()

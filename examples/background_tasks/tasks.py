"""Create and find tasks. A task is a Windlass job: the README explains its fields."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from windlass import Job, Unique, Windlass

QUEUE = "tasks"


class TaskRepository:
    """The tasks in one queue of a database."""

    def __init__(self, app: Windlass) -> None:
        self.app = app

    def create(
        self, type: str, body: Mapping[str, Any] | None = None, *, name: str | None = None, **options: Any
    ) -> Job:
        """Create a task. It is due now, retried until it succeeds, and then deleted. With a name it is a singleton: if
        a task of that name exists, that one is returned. The options are those of `app.enqueue`: `priority`, `delay`,
        `expires`, `connection` …

        With `max_attempts` the task becomes a dead letter after so many failures. Then it is kept for Windlass's usual
        time, because without retention there would be no dead letter.
        """
        keep = 0 if options.get("max_attempts") is None else "7d"
        # The job has no backoff: the processor decides when a failed task is due again, and a rescued task is due at
        # once.
        unique = None if name is None else Unique(name, scope="app")
        defaults = {"queue": QUEUE, "unique": unique, "max_attempts": None, "backoff": 0, "keep": keep}
        return self.app.enqueue(type, body, **(defaults | options))

    def find(self, name: str) -> Job | None:
        """The task of that name, or None. It uses the index of the unique keys."""
        return next(iter(self.app.list(unique=name, queue=QUEUE)), None)

    def waiting(self) -> Iterator[Job]:
        """The tasks that are not done yet: pending and running ones."""
        for state in ("pending", "running"):
            cursor: str | None = None
            while True:
                page = self.app.list(state=state, queue=QUEUE, limit=1000, cursor=cursor)
                yield from page
                cursor = page.next_cursor
                if cursor is None:
                    break

    def counts(self) -> Counter[str]:
        """The number of tasks in each state: pending, running, failed (the dead letters) …"""
        counted: Counter[str] = Counter()
        for tally in self.app.counts().tallies:
            if tally.queue == QUEUE:
                counted[tally.state] += tally.count
        return counted

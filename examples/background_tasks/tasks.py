"""Creating and finding tasks. A task is a Windlass job: see the README for what each of its fields stands for."""

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
        """Due now, tried until it succeeds, then gone. With a name it is a singleton: as long as there is one of that
        name, that one is the answer. Options are those of `app.enqueue`: `priority`, `delay`, `expires`, `connection` …

        With `max_attempts` the task ends as a dead letter after so many failures. It is then kept for Windlass's usual
        time, since a task that leaves no trace leaves no dead letter either.
        """
        keep = 0 if options.get("max_attempts") is None else "7d"
        # No backoff of the job's own: the processor says when a failed task is due again, and what a dead processor
        # held is due as soon as it is found.
        unique = None if name is None else Unique(name, scope="app")
        defaults = {"queue": QUEUE, "unique": unique, "max_attempts": None, "backoff": 0, "keep": keep}
        return self.app.enqueue(type, body, **(defaults | options))

    def find(self, name: str) -> Job | None:
        """The task of that name, if there is one: by the index that keeps names unique."""
        return next(iter(self.app.list(unique=name, queue=QUEUE)), None)

    def waiting(self) -> Iterator[Job]:
        """Tasks that are not done yet: those that wait for their time, and those that someone has in hand."""
        for state in ("pending", "running"):
            cursor: str | None = None
            while True:
                page = self.app.list(state=state, queue=QUEUE, limit=1000, cursor=cursor)
                yield from page
                cursor = page.next_cursor
                if cursor is None:
                    break

    def counts(self) -> Counter[str]:
        """How many tasks there are in each state: pending, running, failed (the dead letters) …"""
        counted: Counter[str] = Counter()
        for tally in self.app.counts().tallies:
            if tally.queue == QUEUE:
                counted[tally.state] += tally.count
        return counted

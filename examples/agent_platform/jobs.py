"""The platform's interface to the queue: enqueue a job by its kind."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from windlass import Job, Unique, UnknownTask, Windlass

MAX_ATTEMPTS = 3


class JobsClient:
    def __init__(self, app: Windlass) -> None:
        self.app = app

    def enqueue(
        self,
        kind: str,
        payload: Mapping[str, Any],
        dedupe_key: str | None = None,
        run_at: datetime | None = None,
        max_attempts: int = MAX_ATTEMPTS,
    ) -> Job:
        """Enqueue a job, due now or at `run_at`. If a job of any kind with this dedupe key is still pending, return
        that one. The first claim releases the key. Inside `attempt.transaction()` the job is part of that
        transaction."""
        if kind not in self.app.tasks:
            raise UnknownTask(f"there is no kind {kind!r}; there are: {', '.join(self.app.task_names)}")
        unique = None if dedupe_key is None else Unique(dedupe_key, until="claimed", scope="app")
        return self.app.enqueue(kind, payload, unique=unique, run_at=run_at, max_attempts=max_attempts)

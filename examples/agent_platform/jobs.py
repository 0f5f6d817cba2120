"""Enqueueing, as the rest of the platform sees it: a kind, a payload, and when."""

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
        """Due now, or at `run_at`. Where a job with this dedupe key, of whatever kind, is still pending, it is the
        answer; the first claim frees the key for good. In a block of `attempt.transaction()` it joins it."""
        if kind not in self.app.tasks:
            raise UnknownTask(f"there is no kind {kind!r}; there are: {', '.join(self.app.task_names)}")
        unique = None if dedupe_key is None else Unique(dedupe_key, until="claimed", scope="app")
        return self.app.enqueue(kind, payload, unique=unique, run_at=run_at, max_attempts=max_attempts)

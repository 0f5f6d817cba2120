"""Every method that does I/O comes twice: one test for both."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from windlass import Attempt, Job, Windlass


class Either:
    """`await either.get(id)` is `app.get(id)`, in a thread of its own, or `await app.aget(id)`.

    `either.of(job)` is the same for a job or an attempt.
    """

    def __init__(self, target: Windlass | Job | Attempt, *, is_async: bool) -> None:
        self.target, self.is_async = target, is_async

    def of(self, target: Job | Attempt) -> Either:
        return Either(target, is_async=self.is_async)

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        if self.is_async:
            twin: Callable[..., Awaitable[Any]] = getattr(self.target, f"a{name}")
            return twin
        method = getattr(self.target, name)
        return lambda *args, **kwargs: asyncio.to_thread(method, *args, **kwargs)

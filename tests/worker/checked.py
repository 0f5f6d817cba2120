"""Tasks that run in child processes, which import this module."""

from __future__ import annotations

import os
from typing import Any

from windlass import Attempt, Windlass

URL = "WINDLASS_CHECKED_URL"

app = Windlass(os.environ.get(URL, "sqlite://"))


@app.task(isolation="process")
def returns(value: Any) -> int:
    return value  # type: ignore[no-any-return, unused-ignore]


@app.task(isolation="process")
def settles(attempt: Attempt) -> str:  # type: ignore[return]
    with attempt.transaction():
        attempt.complete("said")

"""Handlers for worker processes of their own; the store comes by $WINDLASS_URL."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

from windlass import Attempt, Windlass

app = Windlass()


def note(word: str) -> None:
    """One line for the test to read, written whole."""
    with Path(os.environ["NOTES"]).open("a") as file:
        file.write(f"{word}\n")


@app.task(lease="1s", backoff="100ms", max_attempts=3)
def dies(attempt: Attempt) -> None:
    note(f"dies {attempt.number}")
    os._exit(9)


@app.task(lease="2s", backoff="100ms")
def sleeps(seconds: float, name: str) -> str:
    note(f"start {name}")
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        time.sleep(0.02)
    note(f"end {name}")
    return name


@app.task(lease="3s", backoff="100ms")
def waits(name: str) -> str:
    """Until the test lets it go."""
    note(f"start {name}")
    while True:
        time.sleep(0.02)
        if Path(f"{os.environ['NOTES']}.go").exists():
            break
    note(f"end {name}")
    return name


@app.task(lease="4s", backoff="100ms")
async def blocks_the_loop(seconds: float) -> None:
    note("block")
    time.sleep(seconds)  # noqa: ASYNC251 - just that


@app.task(isolation="process", timeout="1s", max_attempts=1)
def never_ends() -> None:
    note("never ends")
    re.match(r"(a+)+$", "a" * 40 + "b")


@app.task(isolation="process")
def square(attempt: Attempt, n: int) -> int:
    attempt.log("squaring")
    return n * n


@app.task(isolation="process", max_attempts=2, backoff="100ms")
def child_dies() -> None:
    note("child dies")
    os._exit(7)

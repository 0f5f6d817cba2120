"""Tasks that run in child processes, which import this module."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from windlass import Attempt, Windlass
from windlass.block import BlockConflict

app = Windlass("sqlite://")


@app.task(isolation="process")
def joined(attempt: Attempt) -> list[Any]:
    return attempt.blockers


@app.task(isolation="process", max_attempts=1)
def disturbed_once(marker: str) -> str:
    if not Path(marker).exists():
        Path(marker).touch()
        raise BlockConflict("the database asked for another try")
    return "done"


@app.task(isolation="process", max_attempts=1)
def which() -> int:
    return os.getpid()


@app.task(isolation="process", max_attempts=1, timeout="1s")
def naps(seconds: float) -> None:
    time.sleep(seconds)


@app.task(isolation="process", max_attempts=1)
def never_gets_there() -> None:
    os._exit(7)


@app.task(isolation="process", retry_on=(OSError,))
def picky(kind: str) -> None:
    raise {"ValueError": ValueError, "OSError": OSError}[kind]("as asked")


@app.task(isolation="process", max_attempts=1)
def forks(number: int) -> int:
    """Makes a copy of its process, and forgets to end it."""
    return -1 if os.fork() == 0 else number


@app.task(isolation="process", max_attempts=1)
def echo(number: int) -> int:
    return number


@app.task(isolation="process")
def settles_itself(attempt: Attempt, url: str, how: str) -> str | None:
    """On the database of the test: the app of this module has another."""
    attempt.app = Windlass(url)
    if how == "fail":
        attempt.fail("no")
    elif how == "retry":
        attempt.retry("later", after="1h")
    elif how == "block":
        with attempt.transaction():
            attempt.complete("A")
    else:
        attempt.complete("A")
    attempt.app.close()
    if how == "complete and raise":
        raise ValueError("too late")
    return "B" if how == "complete and return" else None


def dies_with_its_job(pipe: Any, _parent: int) -> None:
    _, _, token, _ = pipe.recv()
    pipe.send((token, "begun", None))
    os._exit(9)


def dies_at_once(_pipe: object, _parent: int) -> None:
    """In the place of `processes.serve`."""
    os._exit(3)

"""What the soak's workers do: tasks that note when they start and end, and write their effects beside the queue."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

from tests.chains.ledger import Ledger
from windlass import Attempt, Continue, Windlass

from ..history import Event, History

LEASE, BACKOFF, OWN_STATEMENTS = "6s", "50ms", "20s"
EFFECTS = ("effect", "sync_effect", "slow")  # each completed one has written its id, once; no other has


def marker_of(history: Path, pid: int) -> Path:
    """A file that is there when this process has begun to run handlers."""
    return history.with_name(f"ran-{pid}")


app = Windlass()
history = History(Path(os.environ["HISTORY"])) if "HISTORY" in os.environ else None
ledger = Ledger(app.url, create=False)
_started: set[tuple[UUID, UUID]] = set()


def note(kind: str, attempt: Attempt) -> None:
    """A block that the database asks to repeat is the same attempt in the same process: it has started once."""
    assert history is not None
    if kind == "started":
        mark = (attempt.job.id, attempt.token)
        if mark in _started:
            return
        if not _started:
            marker_of(history.path, os.getpid()).touch()
        _started.add(mark)
    history.note(Event(kind=kind, id=attempt.job.id, attempt=attempt.number, token=attempt.token))  # type: ignore[arg-type]


@app.task(lease=LEASE, backoff=BACKOFF)
async def plain(attempt: Attempt, seconds: float) -> str:
    note("started", attempt)
    await asyncio.sleep(seconds)
    note("ended", attempt)
    return "done"


@app.task(lease=LEASE, backoff=BACKOFF)
def in_thread(attempt: Attempt, seconds: float) -> str:
    note("started", attempt)
    time.sleep(seconds)
    note("ended", attempt)
    return "done"


@app.task(lease=LEASE, backoff=BACKOFF, max_attempts=1)
async def last(attempt: Attempt, seconds: float) -> str:
    """It has one attempt: if that is lost it has failed, but not without having begun."""
    note("started", attempt)
    await asyncio.sleep(seconds)
    note("ended", attempt)
    return "done"


@app.task(lease=LEASE, backoff=BACKOFF, isolation="process")
def in_child(attempt: Attempt, seconds: float) -> str:
    note("started", attempt)
    time.sleep(seconds)
    note("ended", attempt)
    return "done"


# How long a handler's own statements take is its own business. On a dead connection that is for ever: hence `timeout`.
@app.task(lease=LEASE, backoff=BACKOFF, timeout=OWN_STATEMENTS)
async def effect(attempt: Attempt, seconds: float) -> None:
    note("started", attempt)
    async with attempt.transaction() as connection:
        await ledger.awrite(connection, str(attempt.job.id))
        await asyncio.sleep(seconds)
        note("ended", attempt)


@app.task(lease=LEASE, backoff=BACKOFF, timeout=OWN_STATEMENTS)
def sync_effect(attempt: Attempt, seconds: float) -> None:
    note("started", attempt)
    with attempt.transaction() as connection:
        ledger.write(connection, str(attempt.job.id))
        time.sleep(seconds)
        note("ended", attempt)


@app.task(lease=LEASE, backoff=BACKOFF)
async def link(attempt: Attempt, left: int) -> str | Continue:
    note("started", attempt)
    note("ended", attempt)
    return Continue(link.call(left - 1)) if left else "end of the chain"


@app.task(lease=LEASE, backoff=BACKOFF)
async def ordered(attempt: Attempt, number: int) -> int:
    note("started", attempt)
    await asyncio.sleep(0.02)
    note("ended", attempt)
    return number


@app.task(lease=LEASE, backoff="500ms", max_attempts=100)
def slow(attempt: Attempt, seconds: float) -> None:
    """Completed in a transaction of its own, whose commit takes its time. While the server's isolation is stricter that
    is refused each time, for seconds; and what waits for this job would wait for ever if it failed."""
    note("started", attempt)
    with own_transaction(app.url) as connection:
        ledger.write(connection, str(attempt.job.id))
        note("ended", attempt)
        attempt.complete("done", connection=connection)
        time.sleep(seconds)


@app.task(lease=LEASE, backoff=BACKOFF, timeout="300ms", max_attempts=3)
async def rude(attempt: Attempt) -> None:
    """Makes of its time-out an error of its own."""
    note("started", attempt)
    try:
        await asyncio.sleep(30)
    except asyncio.CancelledError:
        raise RuntimeError("this handler does not listen") from None


@app.task(lease=LEASE, backoff=BACKOFF)
def deaf(attempt: Attempt, seconds: float) -> None:
    """In a call that nothing interrupts, for longer than a worker's grace."""
    note("started", attempt)
    time.sleep(seconds)
    note("ended", attempt)


@contextmanager
def own_transaction(url: str) -> Iterator[Any]:
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"), timeout=30)) as file, file:
            file.execute("BEGIN IMMEDIATE")
            yield file
    elif url.startswith("postgresql"):
        import psycopg

        # A line that has fallen silent for good would else keep the row locked for ever: the server does not notice.
        with psycopg.connect(url, options="-c idle_in_transaction_session_timeout=20s") as connection:
            yield connection
    else:
        from pymongo import MongoClient

        with MongoClient[Any](url) as client, client.start_session() as session, session.start_transaction():
            yield session

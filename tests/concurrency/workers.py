"""What the processes of these tests run: one function each, to be started anew by `multiprocessing`."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from multiprocessing import get_context
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any, TypeVar

from windlass import StoreUnavailable, Windlass
from windlass.attempt import Attempt
from windlass.outcome import Settlement

QUEUE = "line"
BATCH = 100
BY_ITSELF = 2  # of a batch, so many are completed one by one
START_SECONDS, BUSY_SECONDS, END_SECONDS = 60, 60, 110

T = TypeVar("T")


def run_together(count: int, work: Callable[..., None], *arguments: Any) -> None:
    """The same work in so many new processes, which all begin at the same moment."""
    context = get_context("spawn")
    ready = context.Barrier(count)
    processes = [context.Process(target=work, args=(ready, number, *arguments)) for number in range(count)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(END_SECONDS)
    codes = [process.exitcode for process in processes]
    for process in processes:
        process.kill()
    assert codes == [0] * count


def drain(ready: Barrier, number: int, url: str, folder: Path) -> None:
    """Claim and complete until nothing waits; note each job that was claimed, before it is completed."""
    app = Windlass(url)
    patiently(app.counts)
    with (folder / f"{number}.txt").open("w") as notes:
        ready.wait(START_SECONDS)
        while True:
            attempts = patiently(lambda: app.claim(BATCH, queues=[QUEUE]))
            if not attempts and patiently(app.counts).pending == 0:
                break
            notes.writelines(f"{attempt.job.id}\n" for attempt in attempts)
            for attempt in attempts[:BY_ITSELF]:
                patiently(partial(attempt.complete, number))
            patiently(partial(complete_many, app, attempts[BY_ITSELF:]))
    app.close()


def patiently(act: Callable[[], T]) -> T:
    """Again, as a worker does, where the others keep the store busy."""
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            return act()
        except StoreUnavailable:
            if time.monotonic() > deadline:
                raise


def complete_many(app: Windlass, attempts: list[Attempt]) -> None:
    settlements = [
        Settlement(id=attempt.job.id, token=attempt.token, state="completed", output="1") for attempt in attempts
    ]
    assert app.run_operation(lambda: app.store.settle(settlements)) == []


def enqueue_one(ready: Barrier, number: int, url: str) -> None:
    """The very first use of a database."""
    app = Windlass(url)
    ready.wait(START_SECONDS)
    app.enqueue("greet", {"number": number}, queue=QUEUE)
    app.close()

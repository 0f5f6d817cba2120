"""What a worker shows of itself: a line that changes on a terminal, a log line now and then elsewhere."""

from __future__ import annotations

import asyncio
import sys
import time

from rich.console import Console
from rich.live import Live
from rich.text import Text

from ..logs import Log
from .worker import Worker

log = Log("windlass.worker")

REFRESH_SECONDS = 0.5
LOG_SECONDS = 30.0


async def show(worker: Worker) -> None:
    """Until it is cancelled."""
    if sys.stderr.isatty():
        await _show_line(worker)
    else:
        await _log_lines(worker)


async def _show_line(worker: Worker) -> None:
    console = Console(stderr=True)
    rate, before, moment = 0.0, 0, time.monotonic()
    with Live(console=console, refresh_per_second=4, transient=True) as live:
        while True:
            await asyncio.sleep(REFRESH_SECONDS)
            now = time.monotonic()
            rate += 0.3 * ((worker.completed - before) / (now - moment) - rate)
            before, moment = worker.completed, now
            live.update(Text.assemble(*_parts(worker, rate, await _oldest(worker))))


def _parts(worker: Worker, rate: float, oldest: str) -> list[tuple[str, str]]:
    return [
        (f" {worker.completed:,} done ", "bold green"),
        (f" {len(worker.running)} running ", "cyan"),
        (f" {worker.retried:,} retried ", "yellow" if worker.retried else "dim"),
        (f" {worker.failed:,} failed ", "bold red" if worker.failed else "dim"),
        (f" {rate:,.0f}/s ", ""),
        (f" oldest waiting {oldest} ", "dim"),
    ]


async def _oldest(worker: Worker) -> str:
    try:
        seconds = await worker.app.arun_for_worker(lambda: worker.app.store.next_due(list(worker.claimer.cursors)))
    except Exception:
        return "?"
    return "–" if seconds is None or seconds > 0 else f"{-seconds:.0f} s"


async def _log_lines(worker: Worker) -> None:
    before = 0
    while True:
        await asyncio.sleep(LOG_SECONDS)
        done = worker.completed
        log.info(
            "%d done, %d running, %d retried, %d failed, %.0f/s",
            done, len(worker.running), worker.retried, worker.failed, (done - before) / LOG_SECONDS,
        )  # fmt: skip
        before = done

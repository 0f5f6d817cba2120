"""`windlass demo`: a tour on SQLite in a temporary folder. Every line of the closing table was checked."""

from __future__ import annotations

import logging
import sqlite3
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from ..app import Windlass
from ..attempt import Attempt
from ..errors import LeaseLost
from ..unique import Unique

MAILS = 200


@dataclass
class Tour:
    """What the tour plays with."""

    path: Path
    seen: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.app = app = Windlass(f"sqlite:///{self.path}")

        @app.task(queue="mail")
        async def send_welcome(user_id: int) -> str:
            self.seen["mails"] += 1
            return f"sent to {user_id}"

        @app.task(backoff="1s", max_attempts=3)
        def call_webhook(attempt: Attempt, url: str) -> str:
            self.seen["webhook calls"] += 1
            if attempt.number < 3:
                raise ConnectionError(f"{url} does not answer")
            return "delivered"

        @app.task
        async def build_report(month: str) -> str:
            self.seen["reports"] += 1
            return f"report for {month}"

        self.send_welcome, self.call_webhook, self.build_report = send_welcome, call_webhook, build_report

    def work(self) -> int:
        return self.app.run_worker(until_idle=True)

    def pass_time(self, seconds: float) -> None:
        self.app.store.clock.move(timedelta(seconds=seconds))


Check = tuple[str, str, bool]


def mails(tour: Tour) -> Check:
    jobs = tour.app.enqueue_many([tour.send_welcome.call(number) for number in range(MAILS)])
    tour.work()
    right = tour.seen["mails"] == MAILS and jobs[41].result() == "sent to 41"
    return f"{MAILS} mails enqueued in one go, and sent", f"{tour.seen['mails']} sent", right


def retries(tour: Tour) -> Check:
    job = tour.call_webhook.enqueue("https://example.org/hook")
    for _ in range(3):
        tour.work()
        tour.pass_time(2)
    return "a webhook that fails twice is tried again", f"attempt {job.refresh().attempt}", job.result() == "delivered"


def unique(tour: Tour) -> Check:
    once = tour.build_report.using(unique=Unique("report-may", until="finished"))
    jobs = [once.enqueue("May") for _ in range(5)]
    tour.work()
    right = tour.seen["reports"] == 1 and len(set(jobs)) == 1
    return "the same report asked for five times", f"{tour.seen['reports']} built", right


def order(tour: Tour) -> Check:
    low = tour.build_report.using(priority=-10, queue="order").enqueue("low")
    high = tour.build_report.using(priority=10, queue="order").enqueue("high")
    later = tour.build_report.using(delay="1h", queue="order").enqueue("later")
    claimed = tour.app.claim(queues=["order"])
    right = [attempt.job for attempt in claimed] == [high, low] and later.refresh().state == "pending"
    for attempt in claimed:
        attempt.complete("done")
    return (
        "higher priority first; not before its time",
        " then ".join(str(a.job.input["month"]) for a in claimed),
        right,
    )


def transaction(tour: Tour) -> Check:
    before = tour.app.counts()["pending"]
    connection = sqlite3.connect(tour.path)
    connection.execute("CREATE TABLE IF NOT EXISTS users (id integer)")
    connection.execute("INSERT INTO users VALUES (1)")
    tour.send_welcome.using(connection=connection).enqueue(1)
    connection.rollback()
    connection.close()
    left = tour.app.counts()["pending"] - before
    return "enqueued in a transaction that was rolled back", f"{left} jobs", left == 0


def crash(tour: Tour) -> Check:
    job = tour.build_report.using(queue="crash").enqueue("June")
    (lost,) = tour.app.claim(queues=["crash"], lease="1m")
    tour.pass_time(120)
    rescued = tour.app.rescue()
    tour.pass_time(10)
    tour.work()
    try:
        lost.complete("too late")
        refused = False
    except LeaseLost:
        refused = True
    right = rescued == 1 and refused and job.result() == "report for June"
    return "a worker dies: another does its job, its late answer is refused", f"{rescued} rescued", right


STEPS: list[tuple[str, Callable[[Tour], Check]]] = [
    ("mails", mails),
    ("retries", retries),
    ("unique jobs", unique),
    ("priorities and delays", order),
    ("transactions", transaction),
    ("crashes", crash),
]


@click.command()
def demo() -> None:
    """A tour on SQLite in a temporary folder; it ends by itself."""
    logging.getLogger("windlass").addHandler(logging.NullHandler())  # what fails on purpose is told in the table
    console = Console()
    checks: list[Check] = []
    columns = (TextColumn("{task.description:22}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with tempfile.TemporaryDirectory(prefix="windlass-demo-") as folder:
        tour = Tour(Path(folder) / "jobs.db")
        with Progress(*columns, console=console, transient=True) as progress:
            bar = progress.add_task("", total=len(STEPS))
            for name, step in STEPS:
                progress.update(bar, description=name)
                checks.append(step(tour))
                progress.advance(bar)
        counts = tour.app.counts()
        tour.app.close()
    console.print(closing_table(checks))
    console.print(f"In the end: {counts.completed} completed, {counts.pending} still to come, {counts.failed} failed.")
    sys.exit(0 if all(right for _, _, right in checks) else 1)


def closing_table(checks: list[Check]) -> Table:
    table = Table("what", "seen", "", title="Windlass: the database is the queue")
    for what, seen, right in checks:
        table.add_row(what, seen, "[green]✓[/]" if right else "[red]✗[/]")
    return table

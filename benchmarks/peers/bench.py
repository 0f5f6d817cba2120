"""Measures one system once: each figure in a fresh database, each command in a process of its own."""

from __future__ import annotations

import contextlib
import json
import os
import select
import sqlite3
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import psutil
import psycopg

from .install import Program
from .systems import System

SINGLE_JOBS = 2_000
LATENCY_JOBS = 300
SLOW_JOBS = 10_000
SETTLE_SECONDS = 2.0  # after which an idle worker is taken to be idle
LONGEST_SECONDS = 900.0
MEGABYTE = 1_000_000

# Laid over the durable settings of tests.servers: no checkpoint in the middle of a measurement. CHECKPOINT runs before.
SERVER_SETTINGS = {"shared_buffers": "256MB", "max_wal_size": "4GB", "checkpoint_timeout": "30min"}


class ProgramFailed(Exception):
    """A program ended badly or not at all; the message has its last words."""


@dataclass(frozen=True)
class Database:
    """A fresh database, or a file that is not there yet."""

    url: str
    ask: Callable[[str], Any]  # the first column of the first row
    tidy: Callable[[], None]  # vacuum, checkpoint: what went before is not to be paid for by what comes next


@contextmanager
def fresh_database(system: System, server: str) -> Iterator[Database]:
    with _fresh_file(system) if system.store == "sqlite" else fresh_postgres(server) as database:
        yield database


@contextmanager
def fresh_postgres(server: str) -> Iterator[Database]:
    name = f"bench_{uuid4().hex[:12]}"
    url = urlunsplit(urlsplit(server)._replace(path=f"/{name}"))
    with psycopg.connect(server, autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name}")
        try:
            with psycopg.connect(url, autocommit=True) as connection:

                def ask(sql: str) -> Any:
                    row = connection.execute(sql).fetchone()
                    return row[0] if row else None

                def tidy() -> None:
                    connection.execute("VACUUM ANALYZE")
                    connection.execute("CHECKPOINT")

                yield Database(url, ask, tidy)
        finally:
            admin.execute(f"DROP DATABASE {name} WITH (FORCE)")


@contextmanager
def _fresh_file(system: System) -> Iterator[Database]:
    with tempfile.TemporaryDirectory(prefix="windlass-bench-", ignore_cleanup_errors=True) as folder:
        path = Path(folder) / "jobs.db"

        def ask(sql: str) -> Any:
            with contextlib.closing(sqlite3.connect(path, timeout=30)) as connection:
                return connection.execute(sql).fetchone()[0]

        url = str(path)
        if journal := system.environment.get("WINDLASS_JOURNAL"):
            url = f"sqlite:///{path}?journal_mode={journal}"
        yield Database(url, ask, os.sync)


def measure(system: System, program: Program, server: str, jobs: int) -> dict[str, float]:
    """One round of one system."""
    figures: dict[str, float] = {}
    jobs = jobs_for(system, jobs)
    with fresh_database(system, server) as database:
        run(program, database, "prepare")
        figures["bulk_per_second"] = jobs / run(program, database, "enqueue-bulk", jobs)["seconds"]
        database.tidy()
        figures |= drain(system, program, database, jobs)
    with fresh_database(system, server) as database:
        run(program, database, "prepare")
        took = run(program, database, "enqueue-single", SINGLE_JOBS)["seconds"]
        figures["single_per_second"] = SINGLE_JOBS / took
    if system.has_worker:
        with fresh_database(system, server) as database:
            run(program, database, "prepare")
            figures |= latency(program, database)
    return figures


def jobs_for(system: System, jobs: int) -> int:
    """A slow system's rate is known after fewer jobs, and grows no better with more."""
    return min(jobs, SLOW_JOBS) if system.slow else jobs


def drain(system: System, program: Program, database: Database, jobs: int) -> dict[str, float]:
    """From the first job's start, told by the worker, until the database knows that all are done."""
    resident: list[int] = []
    with working(program, database, "drain", jobs) as worker:
        told = worker.next_line(lambda: resident.append(worker.resident_bytes()))
        while database.ask(system.unfinished):
            worker.check()
            time.sleep(0.002)
        ended_ns = time.time_ns()
        resident.append(worker.resident_bytes())
    return {
        "drain_per_second": jobs / ((ended_ns - told["first_ns"]) / 1e9),
        "cpu_microseconds": told["cpu_seconds"] / jobs * 1e6,
        "resident_megabytes": max(resident) / MEGABYTE,
    }


def latency(program: Program, database: Database) -> dict[str, float]:
    """From just before the enqueue call to the start of the handler, worker and sender in separate processes."""
    with working(program, database, "latency-work", LATENCY_JOBS) as worker:
        time.sleep(SETTLE_SECONDS)
        sent = run(program, database, "latency-send", LATENCY_JOBS)["sent_ns"]
        started = worker.next_line()["started_ns"]
    waits = sorted((start - send) / 1e6 for send, start in zip(sent, started, strict=True))
    return {"pickup_p50_ms": statistics.median(waits), "pickup_p99_ms": waits[int(len(waits) * 0.99)]}


def run(program: Program, database: Database, command: str, count: int = 0) -> dict[str, Any]:
    """Run a command to its end: the line that it printed."""
    try:
        done = subprocess.run(
            [*program.arguments, command, str(count)],
            env=_environment(program, database),
            capture_output=True,
            text=True,
            timeout=LONGEST_SECONDS,
        )
    except subprocess.TimeoutExpired:
        raise ProgramFailed(f"{command}: not done after {LONGEST_SECONDS:.0f} s") from None
    if done.returncode != 0:
        raise ProgramFailed(f"{command}: {_last_words(done.stderr)}")
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    found: dict[str, Any] = json.loads(lines[-1]) if lines else {}
    return found


class Worker:
    """A program that works until it is killed."""

    def __init__(self, process: subprocess.Popen[bytes], stderr: Path) -> None:
        self.process, self._stderr = process, stderr
        self.seen = psutil.Process(process.pid)

    def next_line(self, meanwhile: Callable[[], object] = lambda: None, seconds: float = LONGEST_SECONDS) -> Any:
        """The next line of JSON; `meanwhile` is called twenty times a second."""
        assert self.process.stdout is not None
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if select.select([self.process.stdout], [], [], 0.05)[0]:
                line = self.process.stdout.readline()
                if not line:
                    self.process.wait(10)
                    self.check()
                if line.startswith(b"{"):
                    return json.loads(line)
            else:
                meanwhile()
        raise ProgramFailed(f"a worker did not finish within {seconds:.0f} s: {self._words()}")

    def resident_bytes(self) -> int:
        with contextlib.suppress(psutil.NoSuchProcess):
            return int(self.seen.memory_info().rss)
        return 0

    def check(self) -> None:
        if self.process.poll() is not None:
            raise ProgramFailed(f"a worker ended by itself: {self._words()}")

    def _words(self) -> str:
        return _last_words(self._stderr.read_text(errors="replace"))


@contextmanager
def working(program: Program, database: Database, command: str, count: int) -> Iterator[Worker]:
    with tempfile.TemporaryDirectory(prefix="windlass-bench-") as folder:
        stderr = Path(folder) / "stderr"
        with open(stderr, "wb") as errors:
            process = subprocess.Popen(
                [*program.arguments, command, str(count)],
                env=_environment(program, database),
                stdout=subprocess.PIPE,
                stderr=errors,
                bufsize=0,  # select and a buffer do not know of each other
            )
        try:
            yield Worker(process, stderr)
        finally:
            process.kill()  # what a worker does when it is stopped is not measured, and the database goes with it
            process.wait()
            assert process.stdout is not None
            process.stdout.close()


def _environment(program: Program, database: Database) -> dict[str, str]:
    return {**os.environ, "DATABASE_URL": database.url, "NODE_ENV": "production", **program.environment}


def _last_words(text: str) -> str:
    words = [line.strip() for line in text.splitlines() if line.strip()]
    return words[-1][:300] if words else "it said nothing"

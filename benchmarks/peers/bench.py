"""Measure one system once: each figure in a fresh database, each command in its own process."""

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
from .server_cpu import ServerCpu
from .systems import System

SINGLE_JOBS = 2_000
LATENCY_JOBS = 300
SLOW_JOBS = 10_000
SETTLE_SECONDS = 2.0  # after this time a started worker counts as idle
LONGEST_SECONDS = 900.0
MEGABYTE = 1_000_000

# Added to the durable settings of the server: no checkpoint during a measurement. CHECKPOINT runs before it.
SERVER_SETTINGS = {"shared_buffers": "256MB", "max_wal_size": "4GB", "checkpoint_timeout": "30min"}


class ProgramFailed(Exception):
    """A program failed or did not end. The message has the last line of its output."""


@dataclass(frozen=True)
class Database:
    """A fresh database, or a file that does not exist yet."""

    url: str
    ask: Callable[[str], Any]  # returns the first column of the first row
    tidy: Callable[[], None]  # vacuum and checkpoint, so that earlier work does not slow the next measurement
    server_cpu: Callable[[], ServerCpu | None] = lambda: None  # counts from the call on; None if that is not possible


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

                yield Database(url, ask, tidy, lambda: ServerCpu.of(connection))
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
    """Measure one round of one system."""
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
    """The number of jobs for a system. Fewer jobs are enough for the rate of a slow system."""
    return min(jobs, SLOW_JOBS) if system.slow else jobs


def drain(system: System, program: Program, database: Database, jobs: int) -> dict[str, float]:
    """Measure from the start of the first job, as the worker reports it, until the database shows all jobs done."""
    resident: list[int] = []
    with working(program, database, "drain", jobs) as worker:
        first_ns = worker.next_line()["first_ns"]
        server = database.server_cpu()

        def sample() -> None:
            resident.append(worker.resident_bytes())
            if server is not None:
                server.sample()

        cpu_seconds = worker.next_line(sample)["cpu_seconds"]
        while database.ask(system.unfinished):
            worker.check()
            time.sleep(0.002)
        ended_ns = time.time_ns()
        figures = {} if server is None else server.figures(jobs)
        resident.append(worker.resident_bytes())
    figures["cpu_microseconds"] = cpu_seconds / jobs * 1e6
    if server is not None:
        figures["total_microseconds"] = figures["cpu_microseconds"] + figures["server_microseconds"]
    return {
        "drain_per_second": jobs / ((ended_ns - first_ns) / 1e9),
        "resident_megabytes": max(resident) / MEGABYTE,
        **figures,
    }


def latency(program: Program, database: Database) -> dict[str, float]:
    """Measure from just before the enqueue call to the start of the handler. Worker and sender are two processes."""
    with working(program, database, "latency-work", LATENCY_JOBS) as worker:
        time.sleep(SETTLE_SECONDS)
        sent = run(program, database, "latency-send", LATENCY_JOBS)["sent_ns"]
        started = worker.next_line()["started_ns"]
    waits = sorted((start - send) / 1e6 for send, start in zip(sent, started, strict=True))
    return {"pickup_p50_ms": statistics.median(waits), "pickup_p99_ms": waits[int(len(waits) * 0.99)]}


def run(program: Program, database: Database, command: str, count: int = 0) -> dict[str, Any]:
    """Run a command to its end. Return the JSON that it printed."""
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
        raise ProgramFailed(f"{command}: {_last_line(done.stderr)}")
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    found: dict[str, Any] = json.loads(lines[-1]) if lines else {}
    return found


class Worker:
    """A worker program that runs until it is killed."""

    def __init__(self, process: subprocess.Popen[bytes], stderr: Path) -> None:
        self.process, self._stderr = process, stderr
        self.seen = psutil.Process(process.pid)

    def next_line(self, meanwhile: Callable[[], object] = lambda: None, seconds: float = LONGEST_SECONDS) -> Any:
        """Return the next line of JSON. `meanwhile` is called twenty times a second."""
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
        raise ProgramFailed(f"a worker did not finish within {seconds:.0f} s: {self._error()}")

    def resident_bytes(self) -> int:
        with contextlib.suppress(psutil.NoSuchProcess):
            return int(self.seen.memory_info().rss)
        return 0

    def check(self) -> None:
        if self.process.poll() is not None:
            raise ProgramFailed(f"a worker ended by itself: {self._error()}")

    def _error(self) -> str:
        return _last_line(self._stderr.read_text(errors="replace"))


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
                bufsize=0,  # select does not see lines that are already in a buffer
            )
        try:
            yield Worker(process, stderr)
        finally:
            process.kill()  # the shutdown of a worker is not measured, and the database is dropped anyway
            process.wait()
            assert process.stdout is not None
            process.stdout.close()


def _environment(program: Program, database: Database) -> dict[str, str]:
    return {**os.environ, "DATABASE_URL": database.url, "NODE_ENV": "production", **program.environment}


def _last_line(text: str) -> str:
    words = [line.strip() for line in text.splitlines() if line.strip()]
    return words[-1][:300] if words else "it printed nothing"

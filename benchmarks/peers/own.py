"""Measurements of Windlass alone: its worker under load, idle, and on the other stores.

    python -m benchmarks.peers.own [--only beside …] [--jobs N] [--rounds R]

- beside: drains with many finished and future jobs in the tables, against drains without
- snapshot: drains while another transaction holds its snapshot, against drains without
- memory: the worker's RSS with many jobs waiting, and after very many
- idle: the CPU and the queries of an idle worker
- mongodb, sqlite: drains on the other stores

It writes benchmarks/results/own.json and own.md. A figure that misses its target is marked, and the exit code is 1.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import click
import psycopg
from pymongo import MongoClient

from tests.servers import MONGODB_VARIABLE, POSTGRES_VARIABLE, server_url
from windlass import Windlass
from windlass.embedded import PostgresServer

from .bench import MEGABYTE, SERVER_SETTINGS, Database, drain, fresh_database, fresh_postgres, run, working
from .install import Program, install
from .report import Wish
from .systems import SYSTEMS, System

WINDLASS = SYSTEMS["windlass"]
# A million future jobs are in the same table, so this query uses two indexes to stay cheap.
UNFINISHED_NOW = """
SELECT EXISTS (SELECT 1 FROM windlass_jobs WHERE state = 'running')
    OR EXISTS (SELECT 1 FROM windlass_jobs WHERE queue = 'default' AND state = 'pending'
               AND (lane IS NULL OR lane = 2) AND rank = 0 AND run_at <= now())
"""
CALLS = """
SELECT coalesce(sum(calls), 0)::int, coalesce(sum(calls) FILTER (WHERE query !~* '^(begin|commit|rollback)'), 0)::int
FROM pg_stat_statements WHERE dbid = (SELECT oid FROM pg_database WHERE datname = %s)
"""


@dataclass(frozen=True)
class Settings:
    jobs: int
    rounds: int
    beside: int
    held: int
    many: int
    idle_seconds: float
    program: Program


@dataclass(frozen=True)
class Figure:
    what: str
    value: float
    unit: str
    wanted: float | None = None
    at_most: bool = False

    @property
    def holds(self) -> bool:
        return self.wanted is None or Wish(self.what, self.value, self.wanted, at_most=self.at_most).holds

    def shown(self, value: float) -> str:
        return f"{value:,.0f}{self.unit}" if value >= 100 else f"{value:.2f}{self.unit}"


def _rate(system: System, settings: Settings, database: Database, jobs: int) -> float:
    """Enqueue and drain, in a database that has the schema. Return the rate."""
    run(settings.program, database, "enqueue-bulk", jobs)
    database.tidy()
    return drain(system, settings.program, database, jobs)["drain_per_second"]


def _alone(settings: Settings, server: str, jobs: int) -> float:
    with fresh_postgres(server) as database:
        run(settings.program, database, "prepare")
        return _rate(WINDLASS, settings, database, jobs)


def beside(settings: Settings) -> Iterator[Figure]:
    crowd = replace(WINDLASS, unfinished=UNFINISHED_NOW)
    alone: list[float] = []
    crowded: list[float] = []
    with postgres() as server, fresh_postgres(server) as database:
        run(settings.program, database, "prepare")
        _rate(WINDLASS, settings, database, settings.beside)  # a worker runs the finished jobs, as in real use
        _add_future(database, settings.beside)
        for _ in range(settings.rounds):
            alone.append(_alone(settings, server, settings.jobs))
            crowded.append(_rate(crowd, settings, database, settings.jobs))
    yield Figure("drain alone", statistics.median(alone), "/s")
    label = f"drain beside {settings.beside:,} finished and {settings.beside:,} future jobs"
    yield Figure(label, statistics.median(crowded), "/s")
    yield Figure("… against alone", statistics.median(crowded) / statistics.median(alone), " ×", 0.9)


def _add_future(database: Database, count: int) -> None:
    app = Windlass(database.url)

    @app.task
    async def noop(userId: str, text: str, n: int) -> None: ...

    later = noop.using(delay="1d")
    for start in range(0, count, 10_000):
        numbers = range(start, min(count, start + 10_000))
        app.enqueue_many([later.call(userId="u-123", text="hello world", n=number) for number in numbers])
    app.close()


def snapshot(settings: Settings) -> Iterator[Figure]:
    free: list[float] = []
    free_long: list[float] = []
    during: list[float] = []
    after: list[float] = []
    with postgres() as server:
        for _ in range(settings.rounds):
            free.append(_alone(settings, server, settings.jobs))
            free_long.append(_alone(settings, server, settings.held))
            with fresh_postgres(server) as database, psycopg.connect(database.url) as foreign:
                run(settings.program, database, "prepare")
                foreign.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
                foreign.execute("SELECT txid_current()")  # with a transaction id, it keeps vacuum from removing rows
                during.append(_rate(WINDLASS, settings, database, settings.held))
                after.append(_rate(WINDLASS, settings, database, settings.jobs))
    yield Figure(f"drain of {settings.held:,}", statistics.median(free_long), "/s")
    yield Figure("… while a foreign snapshot is held", statistics.median(during), "/s")
    yield Figure("… against without", statistics.median(during) / statistics.median(free_long), " ×")
    yield Figure(f"drain of {settings.jobs:,}", statistics.median(free), "/s")
    yield Figure(f"… after the snapshot was held through {settings.held:,}", statistics.median(after), "/s")
    yield Figure("… against without", statistics.median(after) / statistics.median(free), " ×", 0.4)


def memory(settings: Settings) -> Iterator[Figure]:
    with postgres() as server:
        waiting = max(_resident(settings, server, settings.many // 10))
        long = _resident(settings, server, settings.many)
    fifth = max(1, len(long) // 5)
    early, late = max(long[:fifth]), max(long[-fifth:])
    yield Figure(f"RSS at most, {settings.many // 10:,} jobs waiting", waiting / MEGABYTE, " MB", 80, at_most=True)
    yield Figure(f"RSS at most, {settings.many:,} jobs waiting", max(long) / MEGABYTE, " MB", 80, at_most=True)
    yield Figure("… its last fifth against its first", late / early, " ×", 1.25, at_most=True)


def _resident(settings: Settings, server: str, jobs: int) -> list[int]:
    """Measure the RSS of a worker during a drain, twenty times a second."""
    samples: list[int] = []
    with fresh_postgres(server) as database:
        run(settings.program, database, "prepare")
        run(settings.program, database, "enqueue-bulk", jobs)
        database.tidy()
        with working(settings.program, database, "drain", jobs) as worker:
            for _ in ("the first job", "the last job"):
                worker.next_line(lambda: samples.append(worker.resident_bytes()))
            samples.append(worker.resident_bytes())
    return samples


def idle(settings: Settings) -> Iterator[Figure]:
    """Measure on a server that counts statements. Your own server must have the extension pg_stat_statements."""
    preload = {"shared_preload_libraries": "pg_stat_statements"}
    with postgres(preload) as server, psycopg.connect(server, autocommit=True) as admin:
        admin.execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
        with fresh_postgres(server) as database:
            name = urlsplit(database.url).path[1:]
            run(settings.program, database, "prepare")
            with working(settings.program, database, "latency-work", 1) as worker:
                time.sleep(5.0)
                busy, calls = sum(worker.seen.cpu_times()[:2]), admin.execute(CALLS, (name,)).fetchall()[0]
                began = time.monotonic()
                time.sleep(settings.idle_seconds)
                took = time.monotonic() - began
                busy_then, calls_then = sum(worker.seen.cpu_times()[:2]), admin.execute(CALLS, (name,)).fetchall()[0]
                worker.check()
    yield Figure("idle worker's CPU", 100 * (busy_then - busy) / took, " %", 1.0, at_most=True)
    yield Figure("idle worker's queries", (calls_then[1] - calls[1]) / took, "/s", 1.0, at_most=True)
    yield Figure("… BEGIN, COMMIT and ROLLBACK counted as well", (calls_then[0] - calls[0]) / took, "/s")


def mongodb(settings: Settings) -> Iterator[Figure]:
    rates: list[float] = []
    with server_url(MONGODB_VARIABLE) as server:
        for _ in range(settings.rounds):
            with _fresh_mongodb(server) as database:
                run(settings.program, database, "prepare")
                rates.append(_rate(WINDLASS, settings, database, settings.jobs))
    yield Figure("MongoDB drain, majority writes, one node", statistics.median(rates), "/s", 8_000)


@contextmanager
def _fresh_mongodb(server: str) -> Iterator[Database]:
    name = f"bench_{uuid4().hex[:12]}"
    client: MongoClient[dict[str, Any]] = MongoClient(server)
    jobs = client[name]["windlass_jobs"]

    def ask(_: str) -> Any:
        return jobs.find_one({"state": {"$in": ["pending", "running"]}})

    try:
        yield Database(urlunsplit(urlsplit(server)._replace(path=f"/{name}")), ask, lambda: None)
    finally:
        client.drop_database(name)
        client.close()


def sqlite(settings: Settings) -> Iterator[Figure]:
    for name, wanted in (("sqlite-windlass", 25_000), ("sqlite-windlass-wal", None)):
        system, rates = SYSTEMS[name], []
        for _ in range(settings.rounds):
            with fresh_database(system, "") as database:
                run(settings.program, database, "prepare")
                rates.append(_rate(system, settings, database, settings.jobs))
        yield Figure(f"SQLite drain, {system.options}", statistics.median(rates), "/s", wanted)


@contextmanager
def postgres(settings: dict[str, str] | None = None) -> Iterator[str]:
    if url := os.environ.get(POSTGRES_VARIABLE):
        yield url
    else:
        with PostgresServer(SERVER_SETTINGS | (settings or {})) as server:
            yield server.url


MEASUREMENTS: dict[str, Callable[[Settings], Iterator[Figure]]] = {
    "beside": beside,
    "snapshot": snapshot,
    "memory": memory,
    "idle": idle,
    "mongodb": mongodb,
    "sqlite": sqlite,
}
RESULTS = Path(__file__).parents[1] / "results"
CACHE = Path(__file__).parents[2] / ".venv" / "peers"


@click.command()
@click.option("--only", type=click.Choice(list(MEASUREMENTS)), multiple=True, help="make only these measurements")
@click.option("--jobs", default=50_000, show_default=True, help="jobs in each drain")
@click.option("--rounds", default=5, show_default=True, help="how often each drain is measured")
@click.option("--beside", default=1_000_000, show_default=True, help="finished and future jobs in the same tables")
@click.option("--held", default=200_000, show_default=True, help="jobs that are drained while the snapshot is held")
@click.option("--many", default=1_000_000, show_default=True, help="jobs in the longest drain, for memory")
@click.option("--idle-seconds", default=20.0, show_default=True)
@click.option("--cache", type=click.Path(path_type=Path), default=CACHE, help="where uvloop is installed")
@click.option("--output", type=click.Path(path_type=Path), default=RESULTS, help="the folder for the results")
def main(only: tuple[str, ...], cache: Path, output: Path, **numbers: Any) -> None:
    settings = Settings(program=install(WINDLASS, cache.absolute()), **numbers)
    found: dict[str, list[Figure]] = {}
    loads: dict[str, float] = {}
    for name in only or MEASUREMENTS:
        found[name] = list(MEASUREMENTS[name](settings))
        loads[name] = round(os.getloadavg()[0], 1)
        for figure in found[name]:
            print(f"{name}: {figure.what}: {figure.shown(figure.value)}", flush=True)
    output.mkdir(parents=True, exist_ok=True)
    report = {
        **numbers,
        "cpus": os.cpu_count(),
        "load": loads,
        "figures": {
            name: [vars(figure) | {"value": float(f"{figure.value:.4g}"), "holds": figure.holds} for figure in figures]
            for name, figures in found.items()
        },
    }
    (output / "own.json").write_text(json.dumps(report, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    (output / "own.md").write_text(_markdown(found, settings, loads), encoding="utf-8")
    sys.exit(0 if all(figure.holds for figures in found.values() for figure in figures) else 1)


def _markdown(found: dict[str, list[Figure]], settings: Settings, loads: dict[str, float]) -> str:
    lines = [
        "# Windlass's worker alone",
        "",
        f"One worker process, {settings.jobs:,} no-op jobs unless a row says otherwise, medians of {settings.rounds}; "
        f"{os.cpu_count()} cores. Written by `python -m benchmarks.peers.own`.",
        "",
        "| figure | measured | target | |",
        "|---|---:|---:|---|",
    ]
    for name, figures in found.items():
        lines.append(f"| **{name}** (load average {loads[name]}) | | | |")
        for figure in figures:
            wanted, mark = "", ""
            if figure.wanted is not None:
                wanted = f"{'≤' if figure.at_most else '≥'} {figure.shown(figure.wanted)}"
                mark = "yes" if figure.holds else "**no**"
            lines.append(f"| {figure.what} | {figure.shown(figure.value)} | {wanted} | {mark} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()

"""The cost of chains, fan-in and order keys, with one worker on PostgreSQL."""

from __future__ import annotations

import json
import statistics
import sys
import time
from pathlib import Path

import click
import psycopg
from rich.console import Console
from rich.progress import Progress

from tests.servers import POSTGRES_VARIABLE, server_url
from windlass import Attempt, Continue, Windlass

from .measure import Figure
from .reporting import table

RESULTS = Path(__file__).parent / "results" / "chains.json"
CONCURRENCY = 50


def fresh(url: str, schema: str) -> Windlass:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE; CREATE SCHEMA {schema}")
    return Windlass(url, schema=schema)


def drained(app: Windlass) -> float:
    began = time.perf_counter()
    app.run_worker(until_idle=True, concurrency=CONCURRENCY)
    return time.perf_counter() - began


def chain(url: str, steps: int, rounds: int) -> Figure:
    """The median of a few rounds, because other work on the machine disturbs a chain: each step waits for the disk."""
    rate = statistics.median(one_chain(url, steps) for _ in range(rounds))
    return Figure("postgres", f"steps of one chain of {steps:,}", rate, wanted=1_000)


def one_chain(url: str, steps: int) -> float:
    app = fresh(url, "bench_chain")

    @app.task
    async def step(left: int) -> int | Continue:
        return Continue(step.call(left - 1)) if left > 1 else 0

    job = step.enqueue(steps)
    seconds = drained(app)
    assert job.result() == 0
    app.close()
    return steps / seconds


def fan_in(url: str, jobs: int) -> list[Figure]:
    app = fresh(url, "bench_fan_in")

    @app.task
    async def part(n: int) -> int:
        return n

    @app.task
    async def whole(attempt: Attempt) -> int:
        return sum(attempt.blockers)

    began = time.perf_counter()
    parts = app.enqueue_many([part.call(n) for n in range(jobs)])
    last = whole.using(after=parts).enqueue()
    added = time.perf_counter() - began
    drained(app)
    assert last.result() == sum(range(jobs))
    total = time.perf_counter() - began
    app.close()
    return [
        Figure("postgres", f"{jobs:,} jobs and one that waits for all: enqueued", added, "s"),
        Figure("postgres", "… until that one has run", total, "s", wanted=5.0, at_most=True),
    ]


def ordered(url: str, keys: int, each: int) -> list[Figure]:
    rates = []
    for of_key in (False, True):
        app = fresh(url, "bench_ordered")

        @app.task
        async def step(n: int) -> None: ...

        for n in range(each):
            calls = [step.using(order_key=f"key {key}") if of_key else step for key in range(keys)]
            app.enqueue_many([one.call(n) for one in calls])
        rates.append(keys * each / drained(app))
        assert app.counts()["completed"] == keys * each
        app.close()
    plain, in_order = rates
    return [
        Figure("postgres", f"{keys * each:,} jobs without an order key", plain),
        Figure("postgres", f"… in order, {keys:,} keys", in_order),
        Figure("postgres", "… against those without", in_order / plain, "×", wanted=0.2),
    ]


@click.command()
@click.option("--output", type=click.Path(path_type=Path), default=RESULTS, help="the file for the JSON")
def main(output: Path) -> None:
    console = Console()
    figures: list[Figure] = []
    with server_url(POSTGRES_VARIABLE) as url, Progress(console=console, transient=True) as progress:
        bar = progress.add_task("PostgreSQL", total=3)
        figures.append(chain(url, 10_000, rounds=3))
        progress.advance(bar)
        figures += fan_in(url, 10_000)
        progress.advance(bar)
        figures += ordered(url, 1_000, 50)
    console.print(table(figures, "Windlass, one worker"))
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps([figure.to_json() for figure in figures], indent=2) + "\n", encoding="utf-8")
    console.print(f"JSON: {output}")
    sys.exit(0 if all(figure.holds for figure in figures) else 1)


if __name__ == "__main__":
    main()

"""Install the systems, measure them one after another, and write a table, JSON and a plot to benchmarks/results/.

    python -m benchmarks.peers [--only name …] [--jobs N] [--rounds R] [--cache folder]

All systems use the same server. Their order is shuffled in each round. The table names a system that fails or cannot be
installed. Then, or if a comparison misses its target, the exit code is 1. The run starts its own server. To use another
one, set WINDLASS_TEST_POSTGRES_URL.
"""

from __future__ import annotations

import json
import os
import platform
import random
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import psycopg
from rich.console import Console

from tests.servers import POSTGRES_VARIABLE
from windlass.embedded import PostgresServer

from .bench import SERVER_SETTINGS, SLOW_JOBS, ProgramFailed, measure
from .install import CHECKOUT, NotInstalled, Program, install
from .plot import svg
from .report import Outcome, markdown, wishes
from .systems import SYSTEMS

RESULTS = CHECKOUT / "benchmarks" / "results"
CACHE = CHECKOUT / ".venv" / "peers"


@click.command()
@click.option("--only", type=click.Choice(list(SYSTEMS)), multiple=True, help="measure only these systems")
@click.option("--jobs", default=50_000, show_default=True, help="jobs in each drain and bulk enqueue")
@click.option("--rounds", default=5, show_default=True, help="how often each system is measured")
@click.option("--cache", type=click.Path(path_type=Path), default=CACHE, help="where the systems are installed")
@click.option("--output", type=click.Path(path_type=Path), default=RESULTS, help="the folder for the results")
@click.option("--seed", type=int, default=None, help="the seed of the order; random by default")
def main(only: tuple[str, ...], jobs: int, rounds: int, cache: Path, output: Path, seed: int | None) -> None:
    console = Console(stderr=True)
    outcomes = {name: Outcome(SYSTEMS[name]) for name in only or SYSTEMS}
    programs = install_all(outcomes, cache, console)
    about: dict[str, Any] = {
        "jobs": jobs, "slow_jobs": min(jobs, SLOW_JOBS), "rounds": rounds, "cpus": os.cpu_count(),
        "machine": platform.machine(), "python": platform.python_version(), "sqlite": sqlite3.sqlite_version,
        "load_before": load(),
    }  # fmt: skip
    with server(any(outcome.system.store == "postgres" for outcome in outcomes.values())) as url:
        about["postgres"] = server_version(url)
        measure_all(outcomes, programs, url, jobs, rounds, random.Random(seed), console)
    about["load_after"] = load()
    found = list(outcomes.values())
    write(output, found, about)
    console.print(f"{output / 'peers.md'}, peers.json, peers.svg")
    print(markdown(found, about))
    whole = all(outcome.problem is None for outcome in found) and all(wish.holds for wish in wishes(found))
    sys.exit(0 if whole else 1)


def install_all(outcomes: dict[str, Outcome], cache: Path, console: Console) -> dict[str, Program]:
    programs: dict[str, Program] = {}
    for name, outcome in outcomes.items():
        console.print(f"installing {name}")
        try:
            programs[name] = install(outcome.system, cache.absolute())
        except NotInstalled as error:
            outcome.problem = f"not installed: {error}"
            console.print(f"  {outcome.problem}", style="red", markup=False)
    return programs


def measure_all(
    outcomes: dict[str, Outcome],
    programs: dict[str, Program],
    url: str,
    jobs: int,
    rounds: int,
    order: random.Random,
    console: Console,
) -> None:
    for number in range(1, rounds + 1):
        for name in order.sample(list(programs), len(programs)):
            outcome = outcomes[name]
            try:
                figures = measure(outcome.system, programs[name], url, jobs)
            except (ProgramFailed, psycopg.Error, sqlite3.Error) as error:
                outcome.problem = str(error)
                console.print(f"{number}/{rounds} {name}: {error}", style="red", markup=False)
                continue
            outcome.rounds.append(figures)
            shown = ", ".join(f"{key} {value:,.1f}" for key, value in figures.items())
            console.print(f"{number}/{rounds} {name}: {shown}; load {load()}", highlight=False)


@contextmanager
def server(wanted: bool) -> Iterator[str]:
    if not wanted or os.environ.get(POSTGRES_VARIABLE):
        yield os.environ.get(POSTGRES_VARIABLE, "")
    else:
        with PostgresServer(SERVER_SETTINGS) as started:
            yield started.url


def server_version(url: str) -> str | None:
    if not url:
        return None
    with psycopg.connect(url) as connection:
        return connection.info.parameter_status("server_version")


def load() -> float:
    return round(os.getloadavg()[0], 1)


def write(output: Path, outcomes: list[Outcome], about: dict[str, Any]) -> None:
    output.mkdir(parents=True, exist_ok=True)
    report = about | {
        "wishes": [wish.to_json() for wish in wishes(outcomes)],
        "systems": [outcome.to_json() for outcome in outcomes],
    }
    (output / "peers.json").write_text(json.dumps(report, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    (output / "peers.md").write_text(markdown(outcomes, about), encoding="utf-8")
    (output / "peers.svg").write_text(svg(outcomes), encoding="utf-8")


if __name__ == "__main__":
    main()

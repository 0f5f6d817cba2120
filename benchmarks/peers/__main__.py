"""Install the systems, measure them one after another, and write a table, JSON and a plot to benchmarks/results/.

    python -m benchmarks.peers [--only name …] [--jobs N] [--rounds R] [--cache folder]
                               [--postgres folder] [--before commit]

All systems use the same server. Their order is shuffled in each round. The table names a system that fails or cannot be
installed. Then, or if a comparison misses its target, the exit code is 1.

The run starts its own server, from a wheel. With --postgres it starts an installed PostgreSQL with default settings,
and the names of the results have its major version: peers-15.md. To use a server that runs already, set
WINDLASS_TEST_POSTGRES_URL. --before measures an earlier commit of Windlass beside this checkout.
"""

from __future__ import annotations

import json
import os
import platform
import random
import sqlite3
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import click
import psycopg
from rich.console import Console

from .bench import SLOW_JOBS, ProgramFailed, measure
from .install import CHECKOUT, NotInstalled, Program, find_commit, install
from .plot import svg
from .report import Outcome, markdown, wishes
from .servers import RunningServer, postgres
from .systems import BEFORE, SYSTEMS, System, systems_before

RESULTS = CHECKOUT / "benchmarks" / "results"
CACHE = CHECKOUT / ".venv" / "peers"


@click.command()
@click.option("--only", type=click.Choice([*SYSTEMS, *BEFORE]), multiple=True, help="measure only these systems")
@click.option("--jobs", default=50_000, show_default=True, help="jobs in each drain and bulk enqueue")
@click.option("--rounds", default=5, show_default=True, help="how often each system is measured")
@click.option("--cache", type=click.Path(path_type=Path), default=CACHE, help="where the systems are installed")
@click.option("--output", type=click.Path(path_type=Path), default=RESULTS, help="the folder for the results")
@click.option("--seed", type=int, default=None, help="the seed of the order; random by default")
@click.option(
    "--postgres",
    "programs",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    default=None,
    metavar="FOLDER",
    help="the folder of initdb and postgres; the embedded PostgreSQL by default",
)
@click.option("--before", default=None, metavar="COMMIT", help="also measure Windlass as it was in this commit")
def main(
    only: tuple[str, ...],
    jobs: int,
    rounds: int,
    cache: Path,
    output: Path,
    seed: int | None,
    programs: Path | None,
    before: str | None,
) -> None:
    console = Console(stderr=True)
    outcomes = {system.name: Outcome(system) for system in chosen_systems(only, before)}
    installed = install_all(outcomes, cache, console)
    about: dict[str, Any] = {
        "jobs": jobs, "slow_jobs": min(jobs, SLOW_JOBS), "rounds": rounds, "cpus": os.cpu_count(),
        "machine": platform.machine(), "python": platform.python_version(), "sqlite": sqlite3.sqlite_version,
        "load_before": load(),
    }  # fmt: skip
    wanted = any(outcome.system.store == "postgres" for outcome in outcomes.values())
    with postgres(programs) if wanted else nullcontext(RunningServer("", "", "")) as server:
        about |= {"postgres": server.version or None, "postgres_kind": server.kind or None}
        measure_all(outcomes, installed, server.url, jobs, rounds, random.Random(seed), console)
    about["load_after"] = load()
    found = list(outcomes.values())
    name = f"peers-{server.major}" if programs and wanted else "peers"
    write(output, name, found, about)
    console.print(f"{output / name}.md, {name}.json, {name}.svg")
    print(markdown(found, about))
    whole = all(outcome.problem is None for outcome in found) and all(wish.holds for wish in wishes(found))
    sys.exit(0 if whole else 1)


def chosen_systems(only: tuple[str, ...], before: str | None) -> list[System]:
    known = dict(SYSTEMS)
    if before is not None:
        try:
            known |= systems_before(find_commit(before))
        except NotInstalled:
            raise click.UsageError(f"--before {before} is not a commit of this checkout.") from None
    for name in only:
        if name not in known:
            raise click.UsageError(f"--only {name} needs --before COMMIT.")
    return [known[name] for name in only or known]


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


def load() -> float:
    return round(os.getloadavg()[0], 1)


def write(output: Path, name: str, outcomes: list[Outcome], about: dict[str, Any]) -> None:
    output.mkdir(parents=True, exist_ok=True)
    report = about | {
        "wishes": [wish.to_json() for wish in wishes(outcomes)],
        "systems": [outcome.to_json() for outcome in outcomes],
    }
    (output / f"{name}.json").write_text(json.dumps(report, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    (output / f"{name}.md").write_text(markdown(outcomes, about), encoding="utf-8")
    (output / f"{name}.svg").write_text(svg(outcomes), encoding="utf-8")


if __name__ == "__main__":
    main()

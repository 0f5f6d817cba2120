"""Measure each store on one connection, print a table and write JSON.

Each ratio comes from one run. Its two sides are measured in turn, so that a busy machine affects both. `wanted` is the
target of a figure. A figure that misses it is marked, and the exit code is 1.
"""

from __future__ import annotations

import json
import platform
import sqlite3
import sys
import tempfile
from pathlib import Path

import click
from rich.console import Console

from tests.servers import MONGODB_VARIABLE, POSTGRES_VARIABLE, server_url

from .measure import Figure
from .mongodb import measure_mongodb
from .postgres import measure_postgres
from .reporting import table
from .sqlite import measure_sqlite

RESULTS = Path(__file__).parent / "results" / "stores.json"


@click.command()
@click.option("--jobs", default=50_000, show_default=True, help="jobs in each measurement")
@click.option("--beside", default=1_000_000, show_default=True, help="finished and future jobs in the same tables")
@click.option("--only", type=click.Choice(["sqlite", "postgres", "mongodb"]), multiple=True)
@click.option("--output", type=click.Path(path_type=Path), default=RESULTS, help="the file for the JSON")
def main(jobs: int, beside: int, only: tuple[str, ...], output: Path) -> None:
    console = Console()
    figures: list[Figure] = []
    wanted = only or ("sqlite", "postgres", "mongodb")
    if "sqlite" in wanted:
        with console.status("SQLite"), tempfile.TemporaryDirectory() as folder:
            figures += measure_sqlite(Path(folder), jobs)
    if "postgres" in wanted:
        with console.status("PostgreSQL"), server_url(POSTGRES_VARIABLE) as url:
            figures += measure_postgres(url, jobs, beside)
    if "mongodb" in wanted:
        with console.status("MongoDB"), server_url(MONGODB_VARIABLE) as url:
            figures += measure_mongodb(url, jobs)
    console.print(table(figures, "Windlass, one connection"))
    report = {
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "machine": platform.machine(),
        "jobs": jobs,
        "beside": beside,
        "figures": [figure.to_json() for figure in figures],
    }
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    console.print(f"JSON: {output}")
    sys.exit(0 if all(figure.holds for figure in figures) else 1)


if __name__ == "__main__":
    main()

"""`python -m examples.order_pipeline`: the round of tour.py, told on the terminal."""

from __future__ import annotations

import click

from ..tour import show
from .tour import tour


@click.command()
@click.option("--url", help="An empty database; a SQLite file in a temporary folder if not given.")
def main(url: str | None) -> None:
    """Take ten orders through the pipeline, and show that the books are exact."""
    show(tour, url)


if __name__ == "__main__":
    main()

"""`python -m examples.order_pipeline`: run the tour and print its checks."""

from __future__ import annotations

import click

from ..tour import show
from .tour import tour


@click.command()
@click.option("--url", help="An empty database; a SQLite file in a temporary folder if not given.")
def main(url: str | None) -> None:
    """Process ten orders, and check that the ledger is exact."""
    show(tour, url)


if __name__ == "__main__":
    main()

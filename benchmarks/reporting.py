"""Show figures as a table."""

from __future__ import annotations

from rich.table import Table

from .measure import Figure


def table(figures: list[Figure], title: str) -> Table:
    table = Table("store", "what", "measured", "wanted", "", title=title)
    for figure in figures:
        mark = "" if figure.wanted is None else ("[green]✓[/]" if figure.holds else "[red]✗[/]")
        table.add_row(figure.store, figure.what, figure.shown, figure.shown_wanted, mark)
    return table

"""Writes the walk of one job into its section of docs/architecture.md. Wants a PostgreSQL server: `make walk`."""

from __future__ import annotations

import ast
from pathlib import Path
from uuid import uuid4

import psycopg

from tests.servers import POSTGRES_VARIABLE, server_url
from tests.walk.trace import PACKAGE, Walk, walk
from windlass import Windlass

DOCUMENT = Path(__file__).parents[2] / "docs" / "architecture.md"
BEGIN, END = "<!-- walk: begin -->", "<!-- walk: end -->"


def summary(name: str) -> str:
    """The first paragraph of a file's docstring."""
    text = ast.get_docstring(ast.parse((Path(PACKAGE) / name).read_text())) or ""
    return text.partition("\n\n")[0].replace("\n", " ")


def section(walk: Walk) -> str:
    passed = [f"{number}. `{name}`: {summary(name)}" for number, name in enumerate(walk.passed, 1)]
    beside = [f"- `{name}`: {summary(name)}" for name in walk.beside]
    title, more = (
        f"**{len(passed)} files.**",
        f"{len(beside)} more files run beside it: they wait, count, plan or wake.",
    )
    return "\n".join([BEGIN, title, "", *passed, "", more, "", *beside, END])


def main() -> None:
    schema = f"walk_{uuid4().hex[:12]}"
    with server_url(POSTGRES_VARIABLE) as url:
        app = Windlass(url, schema=schema)
        try:
            walked = walk(app)
        finally:
            app.close()
            with psycopg.connect(url, autocommit=True) as connection:
                connection.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE")
    before, _, rest = DOCUMENT.read_text().partition(BEGIN)
    DOCUMENT.write_text(before + section(walked) + rest.partition(END)[2])
    print(f"{len(walked.passed)} files, {len(walked.beside)} beside: docs/architecture.md")


if __name__ == "__main__":
    main()

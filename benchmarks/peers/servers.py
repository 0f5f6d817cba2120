"""The PostgreSQL server of a comparison: the embedded one, an installed one, or your own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg

from tests.servers import POSTGRES_VARIABLE
from windlass.embedded import PostgresServer, ServerError

from .bench import SERVER_SETTINGS


@dataclass(frozen=True)
class RunningServer:
    url: str
    version: str
    kind: str  # embedded, stock, or own

    @property
    def major(self) -> str:
        return self.version.partition(".")[0]


class StockServer(PostgresServer):
    """A server of an installed PostgreSQL, of any supported version, with its default settings."""

    locale = ("--locale", "C.UTF-8")  # the builtin provider is new in PostgreSQL 17

    def __init__(self, programs: Path) -> None:
        super().__init__()
        self.settings = {"listen_addresses": "127.0.0.1"}
        self._given = programs.absolute()

    def _find_programs(self) -> Path:
        missing = [name for name in ("initdb", "postgres") if not (self._given / name).exists()]
        if missing:
            raise ServerError(
                f"{self._given} has no {' and no '.join(missing)}. Give the folder of PostgreSQL's programs."
            )
        return self._given


@contextmanager
def postgres(programs: Path | None) -> Iterator[RunningServer]:
    """A stock server if its programs are given, else the server in WINDLASS_TEST_POSTGRES_URL, else an embedded one."""
    if programs is not None:
        with StockServer(programs) as stock:
            yield RunningServer(stock.url, version(stock.url), "stock")
    elif url := os.environ.get(POSTGRES_VARIABLE):
        yield RunningServer(url, version(url), "own")
    else:
        with PostgresServer(SERVER_SETTINGS) as embedded:
            yield RunningServer(embedded.url, version(embedded.url), "embedded")


def version(url: str) -> str:
    """The version without the name of the package, such as 15.12."""
    with psycopg.connect(url) as connection:
        return (connection.info.parameter_status("server_version") or "unknown").split()[0]

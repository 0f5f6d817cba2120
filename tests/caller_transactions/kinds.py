"""All kinds of connections that a caller may lend."""

from __future__ import annotations

import sys

from tests.caller_transactions import alchemy, drivers
from tests.caller_transactions.lender import Lender

KINDS: list[type[Lender]] = [
    drivers.Psycopg,
    drivers.PsycopgBegun,
    drivers.AsyncPsycopg,
    drivers.AsyncPsycopgBegun,
    drivers.Asyncpg,
    drivers.AsyncpgPooled,
    drivers.Sqlite,
    drivers.SqliteBegun,
    *([drivers.SqliteByAttribute] if sys.version_info >= (3, 12) else []),
    drivers.Pymongo,
    drivers.AsyncPymongo,
    *alchemy.KINDS,
]
WITH_SAVEPOINTS = [kind for kind in KINDS if kind.has_savepoints]


def name_of(kind: type[Lender]) -> str:
    return kind.__name__

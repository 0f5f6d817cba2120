"""From a URL to a store. The driver of a database is imported when its store is first opened."""

from __future__ import annotations

import sqlite3
from urllib.parse import parse_qsl, unquote

from ..errors import InvalidInput, MissingExtra
from .store import Store
from .urls import without_password

SCHEMES = "sqlite:///path.db, sqlite:// (in memory), postgresql://…, mongodb://…"


def open_store(url: str, *, schema: str = "public", prefix: str = "windlass_", pool_size: int = 10) -> Store:
    """The store that a URL names. Nothing is connected yet."""
    scheme = url.partition("://")[0] if isinstance(url, str) else ""
    match scheme:
        case "sqlite":
            return _open_sqlite(url, prefix)
        case "postgresql" | "postgres":
            try:
                from .postgres.store import PostgresStore
            except ImportError as error:
                raise MissingExtra(_missing("PostgreSQL", "postgres", error)) from error
            return PostgresStore(url, schema=schema, prefix=prefix, pool_size=pool_size)
        case "mongodb" | "mongodb+srv":
            try:
                from .mongodb.store import MongoStore
            except ImportError as error:
                raise MissingExtra(_missing("MongoDB", "mongodb", error)) from error
            return MongoStore(url, prefix=prefix)
    shown = without_password(url) if isinstance(url, str) else repr(url)
    raise InvalidInput(f"{shown}: no such kind of store; a URL is one of {SCHEMES}")


def _missing(what: str, extra: str, error: ImportError) -> str:
    return f"{what} needs a driver that is not installed ({error.name}): pip install 'windlass[{extra}]'"


def _open_sqlite(url: str, prefix: str) -> Store:
    from .sqlite.store import SqliteStore

    if sqlite3.sqlite_version_info < (3, 35):
        raise MissingExtra(f"SQLite {sqlite3.sqlite_version} is too old: 3.35 or newer is needed")
    # By hand: a file name may contain "#", which begins a fragment in other URLs. A "?" in it is written as %3F.
    place, _, query = url.removeprefix("sqlite://").partition("?")
    if place and not place.startswith("/"):
        raise InvalidInput(f"{url}: a path comes after three slashes, as in sqlite:///{place}")
    options = dict(parse_qsl(query, keep_blank_values=True))
    journal_mode = options.pop("journal_mode", None)
    if options:
        raise InvalidInput(f"{url}: unknown option {', '.join(options)}; there is journal_mode")
    # As in other tools: three slashes before a relative path, four before an absolute one.
    path = unquote(place)[1:]
    return SqliteStore(path or ":memory:", prefix=prefix, journal_mode=journal_mode)

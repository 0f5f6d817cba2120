"""The examination of SQLite by `windlass doctor`."""

from __future__ import annotations

from ...operation import Operation, Statement
from ..sql.examination import missing_indexes
from ..sql.query import Queries, Query
from ..store import Finding

EMPTY_PAGES, EMPTY_SHARE = 10_000, 0.5  # of the file: more of both, and it could be much smaller

VERSION, JOURNAL = Query("version", "SELECT sqlite_version()"), Query("journal", "PRAGMA journal_mode")
PAGES, EMPTY = Query("pages", "PRAGMA page_count"), Query("empty pages", "PRAGMA freelist_count")
INDEXES = Query("indexes", "SELECT name FROM sqlite_master WHERE type = 'index'")


class Examination:
    def __init__(self, queries: Queries) -> None:
        self.queries = queries

    def examine(self) -> Operation[list[Finding]]:
        ((version,),) = yield Statement(VERSION, alone=True)
        ((journal,),) = yield Statement(JOURNAL, alone=True)
        ((pages,),) = yield Statement(PAGES, alone=True)
        ((empty,),) = yield Statement(EMPTY, alone=True)
        there = yield Statement(INDEXES, alone=True)
        is_right = empty < EMPTY_PAGES or empty < EMPTY_SHARE * pages
        return [
            Finding("server", True, f"SQLite {version}, journal mode {journal}"),
            missing_indexes(self.queries.library, {row[0] for row in there}),
            Finding("space", is_right, f"{empty:,} of {pages:,} pages of the file are empty", "app.vacuum()"),
        ]

"""The message about a journal mode that is kept."""

from __future__ import annotations

import logging

import pytest

from windlass import Windlass


@pytest.mark.parametrize("safe", [False, True])
def test_a_store_logs_once_that_it_keeps_the_journal_mode(
    fresh_sqlite_url: str, safe: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("windlass.stores.sqlite.connections.wal_is_safe", lambda version: safe)
    caplog.set_level(logging.INFO, "windlass.sqlite")
    for _ in range(2):  # two stores
        app = Windlass(fresh_sqlite_url)
        app.enqueue("some")
        for _ in range(3):
            with app.store.connections.transaction():
                app.counts()
        app.close()
        app.counts()
        app.close()
    assert sum("keeps its journal mode" in record.getMessage() for record in caplog.records) == (0 if safe else 2)

"""Hints by change stream."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from typing import Any

import pytest

from tests.mongodb.support import raw
from windlass.stores.mongodb import MongoStore
from windlass.stores.wakeup import Hint

READY = Hint("ready", "q")


@pytest.fixture
def heard(store: MongoStore) -> Iterator[queue.Queue[Hint | None]]:
    """What another process would hear; the first None says that it listens."""
    heard: queue.Queue[Hint | None] = queue.Queue()
    other = MongoStore(store.connections.target.url)
    other.wakeup.listen(heard.put)
    assert heard.get(timeout=10) is None
    yield heard
    other.wakeup.close()


def test_sent_after_a_commit(store: MongoStore, heard: queue.Queue[Hint | None]) -> None:
    store.wakeup.send([READY, Hint("told", "x")])
    assert {heard.get(timeout=10), heard.get(timeout=10)} == {READY, Hint("told", "x")}


def test_told_when_the_callers_transaction_commits(store: MongoStore, heard: queue.Queue[Hint | None]) -> None:
    with store.connections.client().start_session() as session:
        session.start_transaction()
        store.connections.run_on(session, lambda: store.hint([Hint("ready", "never")]))
        session.abort_transaction()
        with session.start_transaction():
            store.connections.run_on(session, lambda: store.hint([READY]))
    assert heard.get(timeout=10) == READY


def test_what_a_newer_version_says_is_not_understood_and_does_no_harm(
    store: MongoStore, heard: queue.Queue[Hint | None]
) -> None:
    raw(store, "hints").insert_one({"text": "news:x"})
    store.wakeup.send([READY])
    assert heard.get(timeout=10) == READY


def test_after_the_stream_broke_anything_may_have_happened(store: MongoStore, heard: queue.Queue[Any]) -> None:
    raw(store, "hints").drop()
    assert heard.get(timeout=20) is None
    store.wakeup.send([READY])
    assert heard.get(timeout=10) == READY

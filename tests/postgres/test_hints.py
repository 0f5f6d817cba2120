"""What is told of a queue comes as it was, whatever the queue is called."""

from __future__ import annotations

import threading
from typing import Any

import psycopg
import pytest

from windlass import Windlass
from windlass.stores.postgres.own import ask
from windlass.stores.wakeup import Hint

NAMES = ["it's", 'say "so"', "back\\slash", "\\'); NOTIFY x, '", "$1 %s {}", "größe", "✓", "x" * 3000]


def test_a_hint_that_gets_no_answer_is_sent_once_more(fresh_postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a connection that has just been opened, too: the server may be slow for a moment."""
    app = Windlass(fresh_postgres_url)
    listening, told = threading.Event(), threading.Event()
    app.store.wakeup.listen(lambda hint: (listening if hint is None else told).set())
    assert listening.wait(30)
    lost: list[str] = []

    def ask_in_vain_at_first(connection: Any, statement: str, *parameters: str, seconds: float) -> str | None:
        if statement.startswith("NOTIFY") and not lost:
            lost.append(statement)
            raise psycopg.errors.ConnectionTimeout("no answer")
        return ask(connection, statement, *parameters, seconds=seconds)

    monkeypatch.setattr("windlass.stores.postgres.wakeup.ask", ask_in_vain_at_first)
    app.store.wakeup.send([Hint("ready", "mail")])
    assert told.wait(30)
    assert len(lost) == 1
    app.close()


def test_names_that_look_like_statements_are_heard(fresh_postgres_url: str) -> None:
    app = Windlass(fresh_postgres_url)
    heard: set[Hint] = set()
    listening, complete = threading.Event(), threading.Event()

    def hear(hint: Hint | None) -> None:
        listening.set()
        if hint is not None:
            heard.add(hint)
        if len(heard) >= len(NAMES):
            complete.set()

    app.store.wakeup.listen(hear)
    assert listening.wait(30)
    app.store.wakeup.send([Hint("ready", name) for name in NAMES])
    assert complete.wait(30)
    assert heard == {Hint("ready", name) for name in NAMES}
    app.close()


def test_two_senders_do_not_share_a_connection(fresh_postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a close, the old sender may still wait for an answer while the new one sends."""
    app = Windlass(fresh_postgres_url)
    used: list[Any] = []
    is_waiting, may_end, second = threading.Event(), threading.Event(), threading.Event()

    def ask_slowly(connection: Any, statement: str, *parameters: str, seconds: float) -> str | None:
        if not statement.startswith("NOTIFY"):
            return ask(connection, statement, *parameters, seconds=seconds)
        used.append(connection)
        if len(used) == 1:
            is_waiting.set()
            assert may_end.wait(60)
        else:
            second.set()
        return None

    monkeypatch.setattr("windlass.stores.postgres.wakeup.ask", ask_slowly)
    app.store.wakeup.send([Hint("ready", "mail")])
    assert is_waiting.wait(30)
    app.store.wakeup.close()
    app.store.wakeup.send([Hint("ready", "mail")])
    assert second.wait(30)
    try:
        assert used[0] is not used[1]
    finally:
        may_end.set()
        app.close()

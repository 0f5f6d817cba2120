"""The threads of hints: how many there are, and how an app works without them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.api.hearing import until_heard
from windlass import Unique, Windlass
from windlass.stores import wakeup
from windlass.stores.wakeup import Hint

ROUNDS = 15


def listeners_since(before: set[threading.Thread]) -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name == "windlass-listener" and one not in before]


def wait_in_vain(app: Windlass, timeout: float = 0.02) -> None:
    job = app.enqueue("send", {})
    with pytest.raises(TimeoutError):
        job.result(timeout=timeout)


def test_one_result_after_the_other_needs_one_listener(app: Windlass) -> None:
    before = set(threading.enumerate())
    for _ in range(ROUNDS):
        wait_in_vain(app)
        assert len(listeners_since(before)) == 1


def test_the_listener_ends_some_seconds_after_its_last_use(app: Windlass, monkeypatch: pytest.MonkeyPatch) -> None:
    before = set(threading.enumerate())
    monkeypatch.setattr(wakeup, "LINGER_SECONDS", 0.2)
    wait_in_vain(app)
    (first,) = listeners_since(before)
    first.join(30)
    assert not first.is_alive()
    wait_in_vain(app)  # a new one starts
    assert first not in listeners_since(before)
    heard: list[Hint | None] = []
    app.store.wakeup.listen(heard.append)
    (second,) = listeners_since(before | {first})
    time.sleep(1.0)
    assert second.is_alive()  # it stays as long as there is a listener


async def test_a_second_listener_hears_that_the_connection_is_up(app: Windlass) -> None:
    first: list[Hint | None] = []
    stop = app.store.wakeup.listen(first.append)
    await until_heard(None, first)
    for _ in range(2):
        heard: list[Hint | None] = []
        app.store.wakeup.listen(heard.append)
        assert heard == [None]
        stop()


def fail_to_start(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """The next start of a thread of this name fails, as where a container has too many."""
    start = threading.Thread.start
    failed: list[str] = []

    def fail_once(thread: threading.Thread) -> None:
        if thread.name == name and not failed:
            failed.append(name)
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", fail_once)


async def test_a_sender_that_cannot_start_loses_a_hint_and_no_more(
    new_app: Callable[..., Windlass], monkeypatch: pytest.MonkeyPatch
) -> None:
    app, other = new_app(), new_app()
    heard: list[Hint | None] = []
    other.store.wakeup.listen(heard.append)
    await until_heard(None, heard)
    fail_to_start(monkeypatch, "windlass-hints")
    assert app.enqueue("send", {}, queue="first").created
    assert app.enqueue("send", {}, queue="second").created
    await until_heard(Hint("ready", "second"), heard)


async def test_a_listener_that_cannot_start_is_forgotten(app: Windlass, monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[Hint | None] = []
    lost: list[Hint | None] = []
    fail_to_start(monkeypatch, "windlass-listener")
    with pytest.raises(RuntimeError, match="new thread"):
        app.store.wakeup.listen(lost.append)
    app.store.wakeup.listen(heard.append)
    await until_heard(None, heard)
    assert lost == []


def test_an_error_of_a_hint_does_not_reach_the_caller(app: Windlass, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(hints: Any) -> None:
        raise OSError("no hints today")

    monkeypatch.setattr(app.store.wakeup, "send", fail)
    assert app.enqueue("send", {}).created
    assert app.counts().pending == 1


def test_no_hint_is_sent_where_no_job_was_created(app: Windlass, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[Any] = []
    monkeypatch.setattr(app.store.wakeup, "send", sent.append)
    assert app.enqueue("send", {}, unique=Unique("one")).created
    assert not app.enqueue("send", {}, unique=Unique("one")).created
    assert sent == [[Hint("ready", "default")]]

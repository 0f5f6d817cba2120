"""Hints within a process, while other threads open stores."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator

import pytest

from windlass.stores.sqlite.wakeup import SqliteWakeup
from windlass.stores.wakeup import Hint


@pytest.fixture
def hasty_switches() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("hasty_switches")
def test_hints_are_sent_while_stores_are_opened() -> None:
    stores = [SqliteWakeup(f"some-{number}.db") for number in range(20)]
    over, errors = threading.Event(), []

    def send() -> None:
        try:
            while not over.is_set():
                stores[0].send([Hint("ready", "some")])
        except Exception as error:
            errors.append(error)

    senders = [threading.Thread(target=send) for _ in range(3)]
    for sender in senders:
        sender.start()
    deadline = time.monotonic() + 2
    while time.monotonic() < deadline and not errors:
        SqliteWakeup("other.db")
    over.set()
    for sender in senders:
        sender.join(10)
    assert errors == []


def test_a_hint_reaches_the_stores_of_the_same_file() -> None:
    one, same, other = SqliteWakeup("some.db"), SqliteWakeup("./some.db"), SqliteWakeup("other.db")
    memory, other_memory = SqliteWakeup(":memory:"), SqliteWakeup(":memory:")
    heard: list[tuple[str, Hint | None]] = []
    for name, wakeup in [("one", one), ("same", same), ("other", other), ("memory", memory), ("m2", other_memory)]:
        wakeup._listeners.append(lambda hint, name=name: heard.append((name, hint)))  # type: ignore[misc]
    hint = Hint("ready", "some")
    one.send([hint])
    memory.send([hint])
    assert sorted(heard, key=lambda pair: pair[0]) == [("memory", hint), ("one", hint), ("same", hint)]

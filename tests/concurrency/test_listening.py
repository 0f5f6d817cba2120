"""The thread that listens, with a connection that the test makes and breaks."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator

import pytest

from windlass.stores import wakeup
from windlass.stores.wakeup import Hint, Hub

SOON = 15.0


class Wire(Hub):
    """Each connection breaks when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.opened, self.broken = threading.Semaphore(0), threading.Event()
        self.count = 0

    def send(self, hints: Iterable[Hint]) -> None:
        for hint in hints:
            self.tell(hint)

    def watch(self, stopping: threading.Event) -> None:
        self.count += 1
        self.resume()
        self.opened.release()
        while not stopping.wait(0.01):
            if self.broken.is_set():
                raise ConnectionError("broken")


@pytest.fixture
def wire() -> Iterator[Wire]:
    wire = Wire()
    yield wire
    wire.close()


def test_a_connection_that_breaks_under_a_listener_is_opened_again(wire: Wire) -> None:
    wire.listen(lambda hint: None)
    assert wire.opened.acquire(timeout=SOON)
    wire.broken.set()
    assert wire.opened.acquire(timeout=SOON)


def test_one_that_breaks_without_listeners_is_left_alone(wire: Wire, caplog: pytest.LogCaptureFixture) -> None:
    before = set(threading.enumerate())
    stop = wire.listen(lambda hint: None)
    assert wire.opened.acquire(timeout=SOON)
    (thread,) = set(threading.enumerate()) - before
    stop()
    wire.broken.set()
    thread.join(SOON)
    assert not thread.is_alive()
    assert wire.count == 1
    assert caplog.records == []
    wire.broken.clear()
    heard: list[Hint | None] = []
    wire.listen(heard.append)
    assert wire.opened.acquire(timeout=SOON)
    assert heard == [None]


def test_many_come_and_go_while_the_thread_ends(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    """A listener that comes at the moment at which the thread ends has a thread as well."""
    monkeypatch.setattr(wakeup, "LINGER_SECONDS", 0.0)
    for _ in range(200):
        told = threading.Event()
        stop = wire.listen(lambda hint, told=told: told.set())  # type: ignore[misc]
        assert told.wait(SOON)
        stop()

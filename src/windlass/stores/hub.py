"""The common part of the stores' wake-ups: one thread sends hints, one listens. Each starts when it is first needed.

Threads serve sync and async callers alike. A forked child starts its own threads, with connections of its own.
"""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable

from ..forks import PerProcess
from .hint_threads import FLUSH_SECONDS, Delivery, Listening, Sending
from .wakeup import Hint, Listener


class Hub(ABC):
    """A `Wakeup` without its `send`. Each store says how it watches for hints."""

    def __init__(self) -> None:
        self._listening = PerProcess(lambda: Listening(self.watch))
        with _hubs_lock:
            _hubs.add(self)

    @abstractmethod
    def send(self, hints: Iterable[Hint]) -> None: ...

    @abstractmethod
    def watch(self, stopping: threading.Event) -> None:
        """Call `resume` when the connection is up and `tell` for each hint, until `stopping`. Raise when it breaks."""

    def listen(self, listener: Listener) -> Callable[[], None]:
        self._listening.get().add(listener)
        return lambda: self._forget(listener)

    def _forget(self, listener: Listener) -> None:
        if (listening := self._listening.existing()) is not None:
            listening.remove(listener)

    def tell(self, hint: Hint | None) -> None:
        if (listening := self._listening.existing()) is not None:
            listening.tell(hint)

    def resume(self) -> None:
        """The connection is up. Hints from the time before are lost, so listeners have to look."""
        self.tell(None)

    def flush(self, timeout: float) -> None:
        """Wait until all hints are sent. Here `send` itself has done that."""
        return

    def close(self) -> None:
        if (listening := self._listening.existing()) is not None:
            listening.stop()


class SendingHub(Hub):
    """A `Wakeup` that sends hints over a connection, in a thread."""

    def __init__(self) -> None:
        super().__init__()
        self._sending = PerProcess(lambda: Sending(self.new_delivery))

    @abstractmethod
    def new_delivery(self) -> Delivery:
        """For one thread that sends hints."""

    def send(self, hints: Iterable[Hint]) -> None:
        if hints := list(hints):
            self._sending.get().send(hints)

    def flush(self, timeout: float) -> None:
        if (sending := self._sending.existing()) is not None:
            sending.flush(timeout)

    def close(self) -> None:
        if (sending := self._sending.existing()) is not None:
            sending.stop()
        super().close()


_hubs: weakref.WeakSet[Hub] = weakref.WeakSet()
_hubs_lock = threading.Lock()  # a set cannot be read while another thread adds to it


def all_hubs() -> list[Hub]:
    """Those of this process."""
    with _hubs_lock:
        return list(_hubs)


def _renew_lock() -> None:
    """Runs first in a forked child: a thread of the parent may have held the lock at the moment of the fork."""
    global _hubs_lock
    _hubs_lock = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)


@atexit.register
def _flush_all() -> None:
    """The hints of a script that enqueues and ends are still sent."""
    for hub in all_hubs():
        hub.flush(FLUSH_SECONDS)

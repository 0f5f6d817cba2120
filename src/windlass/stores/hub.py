"""The common part of the stores' wake-ups: one thread sends hints, one listens. Each starts when it is first needed.

Threads serve sync and async callers alike. A forked child starts its own threads, with connections of its own.
"""

from __future__ import annotations

import atexit
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable

from ..forks import PerProcess
from .hint_threads import FLUSH_SECONDS, Delivery, Listening, Sending
from .wakeup import Hint, Listener


class Hub(ABC):
    """A `Wakeup`. Each store says how it delivers hints and how it watches for them."""

    def __init__(self) -> None:
        self._sending = PerProcess(lambda: Sending(self.new_delivery))
        self._listening = PerProcess(lambda: Listening(self.watch))
        _hubs.add(self)

    # For each store

    def new_delivery(self) -> Delivery:
        """For one thread that sends hints. A store that overrides `send` needs none."""
        raise NotImplementedError

    @abstractmethod
    def watch(self, stopping: threading.Event) -> None:
        """Call `resume` when the connection is up and `tell` for each hint, until `stopping`. Raise when it breaks."""

    # Sending

    def send(self, hints: Iterable[Hint]) -> None:
        if hints := list(hints):
            self._sending.get().send(hints)

    def flush(self, timeout: float) -> None:
        if (sending := self._sending.existing()) is not None:
            sending.flush(timeout)

    # Listening

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

    # Ending

    def close(self) -> None:
        if (sending := self._sending.existing()) is not None:
            sending.stop()
        if (listening := self._listening.existing()) is not None:
            listening.stop()


_hubs: weakref.WeakSet[Hub] = weakref.WeakSet()


@atexit.register
def _flush_all() -> None:
    """The hints of a script that enqueues and ends are still sent."""
    for hub in list(_hubs):
        hub.flush(FLUSH_SECONDS)

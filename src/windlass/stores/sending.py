"""Send hints: one thread takes them from the callers, so that no caller waits for the server."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import Protocol

from ..logs import Log
from .wakeup import Hint

log = Log("windlass.wakeup")

PAUSE = 0.002  # seconds after a hint, in which further hints are collected
FLUSH_SECONDS = 1.0  # for the last hints of an app or a process
JOIN_SECONDS = 2.0  # for a thread to stop. It may wait for the server longer, and then it ends later


class Delivery(Protocol):
    """A connection for hints. It is opened when it is first used, and only one thread uses it."""

    def deliver(self, hints: list[Hint]) -> None:
        """Send hints to other processes. May raise: then these hints are lost, which is allowed."""

    def close(self) -> None: ...


class Sending:
    """The hints of one process that are still to be sent, and the thread that sends them."""

    def __init__(self, new_delivery: Callable[[], Delivery]) -> None:
        self._new_delivery = new_delivery
        self._changed = threading.Condition()
        self._outbox: set[Hint] = set()
        self._in_flight = 0
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()
        self._delivery: Delivery | None = None

    def send(self, hints: Iterable[Hint]) -> None:
        with self._changed:
            if self._thread is None:
                try:
                    self._start()
                except RuntimeError as error:  # the next hint tries again
                    log.warning("hints are lost, because no thread can be started for them: %s", error)
                    return
            self._outbox.update(hints)
            self._changed.notify_all()

    def flush(self, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        with self._changed:
            while self._outbox or self._in_flight:
                if not self._changed.wait(deadline - time.monotonic()):
                    return

    def stop(self) -> None:
        """Send the last hints and end the thread. The next hint starts a new one."""
        self.flush(FLUSH_SECONDS)
        with self._changed:
            self._outbox.clear()
            self._stopping.set()
            self._changed.notify_all()
            thread, self._thread = self._thread, None
        if thread is not None and thread is not threading.current_thread():
            thread.join(JOIN_SECONDS)

    def _start(self) -> None:
        stopping = threading.Event()
        thread = threading.Thread(target=self._send_all, args=(stopping,), name="windlass-hints", daemon=True)
        thread.start()
        self._thread, self._stopping = thread, stopping

    def _send_all(self, stopping: threading.Event) -> None:
        # A new connection for each thread: the thread before this one may still wait for an answer on its connection.
        # The attribute keeps the connection in a forked child, where this thread does not run.
        delivery = self._delivery = self._new_delivery()
        while (hints := self._next_hints(stopping)) is not None:
            try:
                delivery.deliver(hints)
            except Exception as error:
                log.debug("a hint was lost: %s", error)
            finally:
                with self._changed:
                    self._in_flight -= 1
                    self._changed.notify_all()
            stopping.wait(PAUSE)
        delivery.close()

    def _next_hints(self, stopping: threading.Event) -> list[Hint] | None:
        """Wait for hints. None: the thread has to stop."""
        with self._changed:
            while not self._outbox and not stopping.is_set():
                self._changed.wait()
            if stopping.is_set():
                return None
            hints, self._outbox = sorted(self._outbox, key=Hint.encode), set()
            self._in_flight += 1
            return hints

"""The common part of the stores' wake-ups: one thread sends hints, one listens. Each starts when it is first needed.

Threads serve sync and async callers alike, and a forked child starts its own threads.
"""

from __future__ import annotations

import atexit
import os
import random
import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable

from ..logs import Log
from .wakeup import Hint, Listener

log = Log("windlass.wakeup")

PAUSE = 0.002  # seconds after a hint, in which further hints are collected
FIRST_DELAY, LONGEST_DELAY = 0.5, 15.0  # seconds between two tries to reach the server


class Hub(ABC):
    """A `Wakeup`. Each store says how it delivers hints and how it watches for them."""

    def __init__(self) -> None:
        self._lock = threading.Condition()
        self._listeners: list[Listener] = []
        self._outbox: set[Hint] = set()
        self._sending = False
        self._sender: threading.Thread | None = None
        self._watcher: threading.Thread | None = None
        self._stop_sending, self._stop_watching = threading.Event(), threading.Event()
        self._resumed = False
        self._pid = os.getpid()
        with _hubs_lock:
            _hubs.add(self)

    # For each store

    @abstractmethod
    def deliver(self, hints: list[Hint]) -> None:
        """Send hints to other processes. May raise: then these hints are lost, which is allowed."""

    def hang_up(self) -> None:  # noqa: B027 - not every store has a connection to close
        """Close the connection that `deliver` uses."""

    @abstractmethod
    def watch(self, stopping: threading.Event) -> None:
        """Call `resume` when the connection is up and `tell` for each hint, until `stopping`. Raise when it breaks."""

    # Sending

    def send(self, hints: Iterable[Hint]) -> None:
        with self._lock:
            self._outbox.update(hints)
            if self._sender is None:
                self._stop_sending = threading.Event()
                self._sender = threading.Thread(
                    target=self._send_all, args=(self._stop_sending,), name="windlass-hints", daemon=True
                )
                self._sender.start()
            self._lock.notify_all()

    def flush(self, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        with self._lock:
            while (self._outbox or self._sending) and self._sender is not None:
                if not self._lock.wait(deadline - time.monotonic()):
                    return

    def _send_all(self, stopping: threading.Event) -> None:
        while True:
            with self._lock:
                while not self._outbox and not stopping.is_set():
                    self._lock.wait()
                if stopping.is_set():
                    break
                hints, self._outbox, self._sending = sorted(self._outbox, key=Hint.encode), set(), True
            try:
                self.deliver(hints)
            except Exception as error:
                log.debug("a hint was lost: %s", error)
            finally:
                with self._lock:
                    self._sending = False
                    self._lock.notify_all()
            stopping.wait(PAUSE)
        self.hang_up()

    # Listening

    def listen(self, listener: Listener) -> Callable[[], None]:
        with self._lock:
            self._listeners.append(listener)
            if self._watcher is None:
                self._stop_watching = threading.Event()
                self._watcher = threading.Thread(
                    target=self._watch_always, args=(self._stop_watching,), name="windlass-listener", daemon=True
                )
                self._watcher.start()
        return lambda: self._forget(listener)

    def _forget(self, listener: Listener) -> None:
        with self._lock:
            if listener in self._listeners:
                self._listeners.remove(listener)
            if not self._listeners and self._watcher is not None:
                self._stop_watching.set()
                self._watcher = None

    def tell(self, hint: Hint | None) -> None:
        with self._lock:
            listeners = list(self._listeners)
        for listener in listeners:
            try:
                listener(hint)
            except Exception:
                log.exception("a listener failed")

    def resume(self) -> None:
        """The connection is up. Hints from the time before are lost, so listeners have to look."""
        self._resumed = True
        self.tell(None)

    def _watch_always(self, stopping: threading.Event) -> None:
        """Listen. When the connection breaks, try again: soon if it was up, more and more slowly while the server is
        away. The delay is random, so that processes do not reconnect at the same time."""
        delay = FIRST_DELAY
        while not stopping.is_set():
            self._resumed = False
            try:
                self.watch(stopping)
            except Exception as error:
                if stopping.is_set():
                    return
                delay = FIRST_DELAY if self._resumed else min(delay * 2, LONGEST_DELAY)
                log.warning("the listener lost its connection (%s); polling until it is back", error)
                stopping.wait(delay * random.uniform(0.5, 1.5))

    # Ending

    def close(self) -> None:
        self.flush(1.0)
        with self._lock:
            self._outbox.clear()
            self._listeners.clear()
            self._stop_sending.set()
            self._stop_watching.set()
            self._lock.notify_all()
            sender, watcher = self._sender, self._watcher
            self._sender = self._watcher = None
        for thread in (sender, watcher):
            if thread is not None and thread is not threading.current_thread():
                thread.join(2.0)

    def _after_fork(self) -> None:
        """A forked child has no threads, and its copies of locks may be locked."""
        if self._pid != os.getpid():
            self._pid = os.getpid()
            self._lock = threading.Condition()
            self._listeners, self._outbox, self._sending = [], set(), False
            self._sender = self._watcher = None


_hubs: weakref.WeakSet[Hub] = weakref.WeakSet()
_hubs_lock = threading.Lock()  # a set cannot be read while another thread adds to it


def all_hubs() -> list[Hub]:
    """Those of this process."""
    with _hubs_lock:
        return list(_hubs)


def _renew_all() -> None:
    """Runs first in a forked child: a thread of the parent may have held a lock at the moment of the fork."""
    global _hubs_lock
    _hubs_lock = threading.Lock()
    for hub in all_hubs():
        hub._after_fork()


os.register_at_fork(after_in_child=_renew_all)


@atexit.register
def _flush_all() -> None:
    """The hints of a script that enqueues and ends are still sent."""
    for hub in all_hubs():
        if hub._pid == os.getpid():
            hub.flush(1.0)

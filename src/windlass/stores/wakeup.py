"""Hints: their contract, and the threads of a process that send them and watch for them.

A hint says that a read may find something new. It may be lost, doubled or late; it is never wrong to ignore one. If all
hints are lost, the poll finds the work. Hints carry names, never rows.

One thread sends, so that no caller waits for the server; one listens. Each starts when it is first needed, and serves
sync and async callers alike. A forked child starts its own threads, with connections of its own.
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
from functools import cache
from typing import Literal, Protocol, TypeAlias, get_args

import msgspec

from ..forks import PerProcess
from ..logs import Log

log = Log("windlass.wakeup")

JOIN_SECONDS = 2.0  # for a thread to stop. It may wait for the server longer, and then it ends later

PAUSE = 0.002  # seconds after a hint, in which further hints are collected
FLUSH_SECONDS = 1.0  # for the last hints of an app or a process

FIRST_DELAY, LONGEST_DELAY = 0.5, 15.0  # seconds between two tries to reach the server
# Seconds without a listener until the thread ends: a caller that waits for one result after the other uses one
# connection for all of them.
LINGER_SECONDS = 5.0

Watch: TypeAlias = Callable[[threading.Event], None]

# ready: a queue has work; finished: a chain has ended; told: a worker should check a job that it runs;
# scheduled: schedules have changed
Kind: TypeAlias = Literal["ready", "finished", "told", "scheduled"]


class Hint(msgspec.Struct, frozen=True):
    kind: Kind
    name: str

    def encode(self) -> str:
        return f"{self.kind}:{self.name}"

    @classmethod
    def decode(cls, text: str) -> Hint | None:
        """None for a kind that only a newer version knows."""
        kind, _, name = text.partition(":")
        return cls(kind, name) if kind in get_args(Kind) else None  # type: ignore[arg-type]


# Called on the listener's thread. None means "anything may have changed": after a reconnect, or where the store only
# sees that something has changed.
Listener: TypeAlias = Callable[[Hint | None], None]


class Wakeup(Protocol):
    """One per store and process. It watches for hints from the first call of `listen` until some seconds after the last
    listener has left."""

    def send(self, hints: Iterable[Hint]) -> None:
        """Send hints after a commit on a connection of Windlass. Returns at once, and coalesces hints. An error of the
        sending is logged, not raised: the commit is done."""

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Call the listener for each hint from now on; call the answer to stop. Where hints come over a connection, the
        listener gets None once it is up, or at once if it is. A listener that raises does not disturb the others."""

    def flush(self, timeout: float) -> None:
        """Wait until all hints are sent: before a process ends."""

    def close(self) -> None: ...


# The wake-ups of the stores


class Hub(ABC):
    """A `Wakeup` without its `send`. Each store says how it watches for hints."""

    def __init__(self) -> None:
        self._listening = PerProcess(lambda: Listening(self.watch))
        _flush_at_exit()
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


# Send


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


# Listen


class Listening:
    """The listeners of one process, and the thread that calls them. It runs while there are listeners, and some seconds
    longer."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._lock = threading.RLock()  # a signal handler may enqueue, and so tell, while its thread holds the lock
        self._listeners: list[Listener] = []
        self._unused_since = 0.0  # when the last listener left
        self._is_up = False  # the connection delivers hints
        self._stopping: Stopping | None = None
        self._thread: threading.Thread | None = None

    def add(self, listener: Listener) -> None:
        with self._lock:
            if self._stopping is None:
                self._start()
            self._listeners.append(listener)
            is_up = self._is_up
        if is_up:
            _call(listener, None)

    def remove(self, listener: Listener) -> None:
        with self._lock:
            if listener in self._listeners:
                self._listeners.remove(listener)
                self._unused_since = time.monotonic()

    def tell(self, hint: Hint | None) -> None:
        with self._lock:
            self._is_up = self._is_up or hint is None
            listeners = list(self._listeners)
        for listener in listeners:
            _call(listener, hint)

    def stop(self) -> None:
        with self._lock:
            thread = self._thread if self._listeners else None  # without listeners it does no more than to end
            self._listeners.clear()
            stopping, self._stopping = self._stopping, None
        if stopping is not None:
            stopping.set()
        if thread is not None and thread is not threading.current_thread():
            thread.join(JOIN_SECONDS)

    def _start(self) -> None:
        self._is_up, self._unused_since = False, time.monotonic()
        stopping = Stopping(self)
        thread = threading.Thread(target=self._watch_always, args=(stopping,), name="windlass-listener", daemon=True)
        thread.start()  # where this raises, the next listener tries again
        self._stopping, self._thread = stopping, thread

    def stop_if_unused(self, stopping: Stopping, seconds: float) -> bool:
        """Whether there has been no listener for so long. Then the next listener starts a new thread."""
        with self._lock:
            if self._listeners or time.monotonic() - self._unused_since < seconds:
                return False
            if self._stopping is stopping:
                self._stopping = None
        return True

    def _watch_always(self, stopping: Stopping) -> None:
        """Listen. When the connection breaks, try again: soon if it was up, more and more slowly while the server is
        away. The delay is random, so that processes do not reconnect at the same time."""
        delay = FIRST_DELAY
        while not stopping.is_set():
            try:
                self._watch(stopping)
            except Exception as error:
                if stopping.is_set() or self.stop_if_unused(stopping, 0.0):
                    return
                delay = FIRST_DELAY if self._is_up else min(delay * 2, LONGEST_DELAY)
                self._is_up = False
                log.warning("the listener lost its connection (%s); polling until it is back", error)
                stopping.wait(delay * random.uniform(0.5, 1.5))


class Stopping(threading.Event):
    """Tells the thread to stop: after `set`, or when there has been no listener for some seconds."""

    def __init__(self, listening: Listening) -> None:
        super().__init__()
        self._listening = listening

    def is_set(self) -> bool:
        if not super().is_set() and self._listening.stop_if_unused(self, LINGER_SECONDS):
            self.set()
        return super().is_set()

    def wait(self, timeout: float | None = None) -> bool:
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self.is_set():
            left = LINGER_SECONDS if deadline is None else deadline - time.monotonic()
            if left <= 0:
                return False
            super().wait(min(left, LINGER_SECONDS))
        return True


def _call(listener: Listener, hint: Hint | None) -> None:
    try:
        listener(hint)
    except Exception:
        log.exception("a listener failed")


# Fork and exit

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


@cache
def _flush_at_exit() -> None:
    """Registered with the first hub, after the exit handler of its driver: the last one registered runs first."""
    atexit.register(_flush_all)


def _flush_all() -> None:
    """The hints of a script that enqueues and ends are still sent."""
    for hub in all_hubs():
        hub.flush(FLUSH_SECONDS)

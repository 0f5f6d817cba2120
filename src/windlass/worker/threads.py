"""Sync handlers in threads. An interruption is raised in the thread itself, at its next step of Python code.

The threads are daemons: one whose handler does not end does not keep the process from ending.
"""

from __future__ import annotations

import asyncio
import contextvars
import ctypes
import queue
import sys
import threading
from collections.abc import Callable
from typing import Any

from ..attempt import Attempt

AGAIN_SECONDS = 1.0  # between looks whether an interruption was lost, and must be raised again

_lost: set[int] = set()  # threads in which Python has ignored an interruption


class Interruption(BaseException):
    """Raised in a handler's thread: it timed out, was cancelled, or the worker ends. Not to be caught for good."""


class Threads:
    """As many threads as calls run at once. They take calls from one queue, where a thread that is at work finds the
    next without waiting to be woken."""

    def __init__(self) -> None:
        self.closed = False
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._count = self._running = 0

    def reserve(self) -> None:
        """A thread for a call that is to come. RuntimeError if the system has none left."""
        if self._running >= self._count:
            loop = asyncio.get_running_loop()
            threading.Thread(target=self._serve, args=(loop,), name="windlass-handler", daemon=True).start()
            self._count += 1
        self._running += 1

    def unreserve(self) -> None:
        self._running -= 1

    async def run(self, attempt: Attempt, function: Callable[[], Any], kill: Callable[[], None] | None = None) -> Any:
        """The function, in a thread that is reserved. `kill` ends it for certain, where there is a way.

        The worker interrupts a thread and waits for it, because the handler works until it has ended. Only when
        the worker ends is it left behind. Then `attempt.interrupter` stays: a sign that the handler still runs.
        """
        loop = asyncio.get_running_loop()
        call = _Call(contextvars.copy_context(), function)
        interrupt = attempt.interrupter = kill or call.interrupt
        self._calls.put(call)
        cancelled: asyncio.CancelledError | None = None
        while not call.ended:
            call.waiter = loop.create_future()
            try:
                await call.waiter
            except asyncio.CancelledError as error:
                if self.closed and kill is None:
                    raise
                cancelled = error
                interrupt()
        attempt.interrupter = None
        if cancelled is not None:
            raise cancelled
        if call.error is not None:
            raise call.error
        return call.value

    def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        """A thread's life."""
        while (call := self._calls.get()) is not None:
            call()
            try:
                loop.call_soon_threadsafe(self._has_ended, call)
            except RuntimeError:
                return  # the loop has ended before the handler
            del call  # while it waits, nothing of the job is kept

    def _has_ended(self, call: _Call) -> None:
        """In the loop."""
        call.ended = True
        self._running -= 1
        if call.timer is not None:
            call.timer.cancel()
        if call.waiter is not None and not call.waiter.done():
            call.waiter.set_result(None)

    def close(self) -> None:
        """Threads end when they have nothing to do."""
        self.closed = True
        for _ in range(self._count):
            self._calls.put(None)
        self._count = 0


class _Call:
    """A handler on its way through a thread. What it raises is kept as a value: a future cannot carry StopIteration,
    and GeneratorExit from a future would close the coroutines that wait for it."""

    def __init__(self, context: contextvars.Context, function: Callable[[], Any]) -> None:
        self.context, self.function = context, function
        self.value: Any = None
        self.error: BaseException | None = None
        self.ended = False  # as the loop knows it
        self.waiter: asyncio.Future[None] | None = None
        self.timer: asyncio.TimerHandle | None = None  # once it is interrupted
        self._lock = threading.Lock()
        self._thread: int | None = None
        self._interrupted = False

    def __call__(self) -> None:
        try:
            self.value = self._run()
        except BaseException as error:
            self.error = error

    def _run(self) -> Any:
        with self._lock:
            if self._interrupted:
                raise Interruption
            self._thread = threading.get_ident()
        try:
            return self.context.run(self.function)
        finally:
            with self._lock:
                self._thread = None
                _raise_in(threading.get_ident(), None)  # too late now: it would hit whatever this thread does next
                if _lost:
                    _lost.discard(threading.get_ident())

    def interrupt(self) -> None:
        """In the loop. A handler that catches the interruption is not interrupted again; if Python has ignored it, it
        is raised once more."""
        with self._lock:
            if self._interrupted:
                return
            self._interrupted = True
            if self._thread is not None:
                _LossHook.install()
                _raise_in(self._thread, Interruption)
        self._look_again()

    def _look_again(self) -> None:
        self.timer = asyncio.get_running_loop().call_later(AGAIN_SECONDS, self._interrupt_again)

    def _interrupt_again(self) -> None:
        with self._lock:
            if self._thread in _lost:
                _lost.discard(self._thread)
                _LossHook.install()
                _raise_in(self._thread, Interruption)
        self._look_again()


class _LossHook:
    """Python ignores an exception that leaves `__del__` or a weakref callback, and only reports it to
    `sys.unraisablehook`. This hook calls the hook of the program, then it notes a lost interruption."""

    def __init__(self, before: Callable[[sys.UnraisableHookArgs], Any]) -> None:
        self._before = before

    def __call__(self, unraisable: sys.UnraisableHookArgs) -> None:
        try:
            self._before(unraisable)
        finally:  # last: an interruption in this hook would be lost for good
            if unraisable.exc_type is Interruption:
                _lost.add(threading.get_ident())

    @classmethod
    def install(cls) -> None:
        """At each interruption, as the program may have set another hook meanwhile."""
        if not isinstance(sys.unraisablehook, cls):
            sys.unraisablehook = cls(sys.unraisablehook)


def _raise_in(thread: int, error: type[BaseException] | None) -> None:
    """At the next step of that thread. None takes back an exception that was not raised yet."""
    argument = None if error is None else ctypes.py_object(error)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), argument)

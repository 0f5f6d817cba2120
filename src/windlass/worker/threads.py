"""Sync handlers in threads. An interruption is raised in the thread itself, at its next step of Python code."""

from __future__ import annotations

import asyncio
import contextvars
import ctypes
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ..attempt import Attempt


class Interruption(BaseException):
    """Raised in a handler's thread: it timed out, was cancelled, or the worker ends. Not to be caught for good."""


class Threads:
    def __init__(self, slots: int) -> None:
        self.slots = slots
        self._pool: ThreadPoolExecutor | None = None

    async def run(self, attempt: Attempt, function: Callable[[], Any]) -> Any:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.slots, thread_name_prefix="windlass-handler")
        call = _Call(contextvars.copy_context(), function)
        future = asyncio.wrap_future(self._pool.submit(call))
        attempt.interrupter = call.interrupt
        try:
            # Shielded: the thread is interrupted and waited for, since its work goes on until it has ended.
            while not future.done():
                try:
                    await asyncio.shield(future)
                except asyncio.CancelledError:
                    if attempt.stop is None:
                        raise
                    asyncio.current_task().uncancel()  # type: ignore[union-attr]
            value, error = future.result()
        finally:
            attempt.interrupter = None
        if error is not None:
            raise error
        return value

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)


class _Call:
    """A handler on its way through a thread. What it raises comes back as a value: a future cannot carry StopIteration,
    and GeneratorExit from a future would close the coroutines that wait for it."""

    def __init__(self, context: contextvars.Context, function: Callable[[], Any]) -> None:
        self.context, self.function = context, function
        self._lock = threading.Lock()
        self._thread: int | None = None
        self._interrupted = False

    def __call__(self) -> tuple[Any, BaseException | None]:
        try:
            return self._run(), None
        except BaseException as error:
            return None, error

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

    def interrupt(self) -> None:
        with self._lock:
            self._interrupted = True
            if self._thread is not None:
                _raise_in(self._thread, Interruption)


def _raise_in(thread: int, error: type[BaseException] | None) -> None:
    """At the next step of that thread; None takes back what was not raised yet."""
    argument = None if error is None else ctypes.py_object(error)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), argument)

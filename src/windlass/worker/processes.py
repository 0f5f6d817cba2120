"""Handlers with `isolation="process"`: they run in child processes, so that a timeout or a cancel really ends them.

The worker kills the child then. A child runs one job after another, and the worker starts a new one when it is gone.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import sys
import threading
from collections.abc import Awaitable, Callable
from concurrent import futures
from multiprocessing.process import BaseProcess
from typing import Any, cast
from weakref import WeakKeyDictionary

import msgspec

from ..app import Windlass
from ..attempt import Attempt
from ..errors import WindlassError
from ..job import is_last_attempt
from ..outcome import Continue, Interruption, Snooze
from ..task import Task
from .child import raised, serve
from .threads import Threads

NO_CHILD_SECONDS = 5.0  # until a job is tried again whose children died before they had it
CHILD_TRIES = 3  # children that are tried when one is dead before it has the job
CHILD_NAME = "windlass-handler"
_context = multiprocessing.get_context("spawn")


def refuse_in_child() -> None:
    """A child imports the program that it belongs to; that is not to start a worker of its own."""
    if multiprocessing.current_process().name == CHILD_NAME:
        raise WindlassError("a worker is started while the program is imported: put it under if __name__ == '__main__'")


class ProcessDied(Interruption):
    """The child process that ran the handler ended before the handler did."""


class NotBegun(ProcessDied):
    """The child process did not start, or was dead before it had the job; or it died before the last attempt of the job
    counted."""

    had_job = False


class ChildProcesses:
    """As many children as jobs run in them at once, at most one for each slot."""

    def __init__(self, threads: Threads) -> None:
        self._threads = threads
        self._idle: list[_Child] = []
        self._all: set[_Child] = set()

    async def run(self, attempt: Attempt, task: Task[..., Any]) -> Any:
        place = _place(task)
        for tries_left in reversed(range(CHILD_TRIES)):
            try:
                kind, value = await self._run_in(self._take(), place, attempt)
                break
            except NotBegun as error:
                if attempt.interrupted:
                    raise
                if error.had_job and not tries_left:  # the import of its module, or the job, ends every child
                    raise ProcessDied(str(error)) from error
                if not tries_left:  # its handler was never called: no attempt is spent
                    raise Snooze(str(error), after=NO_CHILD_SECONDS) from error
        if kind == "continue":
            return Continue(value)
        if kind != "done":
            raise raised(kind, value)
        if value == "null" and attempt.unconfirmed_settlement is not None:
            return None  # whatever type the task declares
        return task.signature.decode_result(value)

    async def _run_in(self, child: _Child, place: tuple[str, str, str | None], attempt: Attempt) -> tuple[str, Any]:
        try:
            loop = asyncio.get_running_loop()
            try:
                self._threads.reserve()
            except RuntimeError as error:
                raise NotBegun(f"no thread can be started: {error}") from error
            answer: tuple[str, Any] = await self._threads.run(
                attempt, lambda: child.run(place, attempt, loop), child.kill
            )
        except BaseException:
            self._drop(child)
            raise
        if child.doomed:  # killed too late: its answer was on the way
            self._drop(child)
        else:
            self._idle.append(child)
        return answer

    def _take(self) -> _Child:
        while self._idle:
            child = self._idle.pop()
            if child.is_alive:
                return child
            self._drop(child)
        child = _Child()
        self._all.add(child)
        return child

    def _drop(self, child: _Child) -> None:
        self._all.discard(child)
        child.kill()

    def close(self) -> None:
        for child in list(self._all):
            self._drop(child)
        self._idle.clear()


def _place(task: Task[..., Any]) -> tuple[str, str, str | None]:
    """Where a child finds the task, which is imported, never unpickled; and the module of its app, where the app has
    included the task: then the task's own module knows no app."""
    function = task.function
    if "<locals>" in function.__qualname__:
        raise WindlassError(f"{task.name}: a task of isolation='process' is defined at the top of a module")
    return function.__module__, function.__qualname__, _home(task) if task.is_included else None


_homes: WeakKeyDictionary[Windlass, str] = WeakKeyDictionary()


def _home(task: Task[..., Any]) -> str:
    """The module that has the app, the main one only where no other has it."""
    if task.app in _homes:
        return _homes[task.app]
    for name in sorted(sys.modules.copy(), key="__main__".__eq__):
        if any(value is task.app for value in list(getattr(sys.modules.get(name), "__dict__", {}).values())):
            _homes[task.app] = name
            return name
    raise WindlassError(
        f"{task.name}: isolation='process' needs the app at the top of a module, where a child process can import it"
    )


class _Child:
    def __init__(self) -> None:
        self.doomed = False
        self._process: BaseProcess | None = None
        self._lock = threading.Lock()  # a kill may come while the process starts

    @property
    def is_alive(self) -> bool:
        return not self.doomed and self._process is not None and self._process.is_alive()

    def _start(self) -> None:
        """On a thread, as it takes some time. Linux kills the child when this thread ends: the threads of handlers stay
        until the worker ends."""
        mine, theirs = _context.Pipe()
        process = _context.Process(target=serve, args=(theirs, os.getpid()), name=CHILD_NAME, daemon=True)
        try:
            process.start()
        except BaseException:
            mine.close()
            raise
        finally:
            theirs.close()
        with self._lock:
            self.pipe, self._process = mine, process
            if self.doomed:
                process.kill()

    def run(
        self, place: tuple[str, str, str | None], attempt: Attempt, loop: asyncio.AbstractEventLoop
    ) -> tuple[str, Any]:
        """On a thread: send the job, pass on what it reports, wait for how it ended."""
        if self._process is None:
            try:
                self._start()
            except OSError as error:  # the system has no process, no memory or no descriptor left
                raise NotBegun(f"no child process can be started: {error}") from error
        job = msgspec.structs.replace(attempt.job, _app=None)
        begun = had_job = False
        counts_at_go = is_last_attempt(job)
        try:
            self.pipe.send((place, job, attempt.token, attempt.waited_for))
            while True:
                token, kind, value = self.pipe.recv()
                if token != attempt.token:
                    continue  # of a job before, by a thread that has outlived its handler
                if kind == "begun":
                    had_job, begun = True, not counts_at_go
                elif kind == "ready":
                    if attempt.begin is not None:
                        _begin(attempt, attempt.begin, loop)
                    self.pipe.send("go")
                    begun = True
                elif kind == "progress":
                    attempt.progress(*value)
                elif kind == "log":
                    attempt.log(value)
                else:
                    answer, settled, settlement = value
                    attempt.settled = settled or attempt.settled
                    attempt.unconfirmed_settlement = settlement or attempt.unconfirmed_settlement
                    return cast("tuple[str, Any]", answer)
        except (EOFError, OSError) as error:
            died = (ProcessDied if begun else NotBegun)(f"the child process ended with exit code {self._exit_code()}")
            if isinstance(died, NotBegun):
                died.had_job = had_job
            raise died from error

    def _exit_code(self) -> int | None:
        if self._process is None:
            return None
        self._process.join(5.0)
        return self._process.exitcode

    def kill(self) -> None:
        with self._lock:
            self.doomed = True
            if self._process is not None:
                self._process.kill()


def _begin(attempt: Attempt, begin: Callable[[], Awaitable[None]], loop: asyncio.AbstractEventLoop) -> None:
    """On a thread. Again, if a handler that cancels all tasks that it finds has cancelled this one."""

    async def awaited() -> None:
        await begin()

    while True:
        try:
            return asyncio.run_coroutine_threadsafe(awaited(), loop).result()
        except futures.CancelledError:
            if attempt.stop is not None or loop.is_closed():
                raise NotBegun("it was stopped before it began") from None

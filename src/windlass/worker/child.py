"""The child's side of a handler with `isolation="process"`: it receives jobs on a pipe, and sends how they ended."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import os
import select
import signal
import sys
import threading
from multiprocessing.connection import Connection
from typing import Any

from ..attempt import Attempt, current
from ..block import BlockConflict, BlockRefused
from ..errors import WindlassError
from ..job import is_last_attempt
from ..outcome import Cancel, Continue, Fail, Retry, Snooze, describe_error
from ..task import Task
from .watchdog import die_with_parent


class _ChildAttempt(Attempt, kw_only=True):
    """The attempt as the child sees it: its reports go to the worker."""

    line: _Line

    def progress(self, fraction: float, text: str = "") -> None:
        self.line.send("progress", (fraction, text))

    def log(self, text: str) -> None:
        self.line.send("log", text)

    def say_ready(self) -> None:
        self.line.send("ready", None)


class _Line:
    """The pipe to the worker, for one job. A copy of the child, which a handler has made by a fork, sends nothing."""

    lock = threading.Lock()

    def __init__(self, pipe: Connection, token: Any) -> None:
        self.pipe, self.token, self.process = pipe, token, os.getpid()

    def send(self, kind: str, value: Any) -> None:
        if os.getpid() == self.process:
            with self.lock:
                self.pipe.send((self.token, kind, value))


def serve(pipe: Connection, parent: int) -> None:
    """Run one job after another, until the worker ends.

    The child ignores the signals that stop a worker: they are often sent to all processes of a service, and the worker
    lets its jobs end first."""
    die_with_parent(parent)
    if hasattr(select, "poll"):
        threading.Thread(target=_die_with_pipe, args=(pipe.fileno(),), name="windlass-parent", daemon=True).start()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _ignore)  # not SIG_IGN, which the programs that a handler starts would inherit
    sys.path.insert(0, os.getcwd())
    while True:
        try:
            (module, name, home), job, token, blockers = pipe.recv()
        except (EOFError, OSError):
            return
        line, task, attempt = _Line(pipe, token), None, None
        line.send("begun", None)
        try:
            task = _find(module, name, home)
            attempt = _ChildAttempt(task.app, job, token, line=line)
            attempt.set_blockers(blockers)
            answer: tuple[str, Any] = _call(task, attempt, pipe)
        except BaseException as error:
            answer = _ended_badly(error, task)
        if os.getpid() != line.process:
            os._exit(1)  # a copy that the handler has made and forgotten to end
        settled, settlement = (False, None) if attempt is None else (attempt.settled, attempt.unconfirmed_settlement)
        line.send("ended", (answer, settled, settlement))


def _ignore(_number: int, _frame: object) -> None:
    pass


def _die_with_pipe(descriptor: int) -> None:
    """On a system that does not end the child with its worker, the end of the pipe shows it."""
    poll = select.poll()
    poll.register(descriptor, 0)
    poll.poll()
    os._exit(1)


def _import(module: str) -> Any:
    return importlib.import_module("__mp_main__" if module == "__main__" else module)


def _find(module: str, name: str, home: str | None) -> Task[..., Any]:
    if home is not None:
        _import(home)
    found = _import(module)
    for part in name.split("."):
        found = getattr(found, part)
    if not isinstance(found, Task):
        raise WindlassError(f"{module}.{name} is not the task itself: another decorator stands above @app.task")
    return found


def _call(task: Task[..., Any], attempt: _ChildAttempt, pipe: Connection) -> tuple[str, Any]:
    arguments = task.signature.decode_arguments(attempt.job.input_json)
    if task.signature.injected_name:
        arguments[task.signature.injected_name] = attempt
    current.set(attempt)
    if is_last_attempt(attempt.job):
        attempt.say_ready()
        pipe.recv()  # the worker has marked it in the store
    result = task.function(**arguments)
    value = asyncio.run(result) if inspect.iscoroutine(result) else result
    if isinstance(value, Continue):
        return "continue", value.call
    if value is None and attempt.unconfirmed_settlement is not None:
        return "done", "null"  # it has settled its job itself, and need not return a result
    return "done", task.signature.encode_result(value)


def _ended_badly(error: BaseException, task: Task[..., Any] | None) -> tuple[str, Any]:
    """How the handler ended, as plain data: its exception might not survive pickling."""
    if isinstance(error, Retry | Snooze):
        return type(error).__name__, (str(error), error.after, error.at)
    if isinstance(error, BlockConflict):
        return "BlockConflict", (str(error), error.in_settlement)
    if isinstance(error, Fail | Cancel | BlockRefused):
        return type(error).__name__, (str(error),)
    return "error", (describe_error(error), task is None or task.retry_rules.allow(error))

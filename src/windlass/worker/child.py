"""The child's side of a handler with `isolation="process"`: it receives jobs on a pipe, and sends how they ended."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import io
import os
import pickle
import select
import signal
import sys
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from multiprocessing.connection import Connection
from typing import Any, cast

import msgspec

from ..attempt import Attempt, current
from ..block import BlockConflict, BlockRefused
from ..errors import InvalidInput, WindlassError
from ..job import Job, JobError, is_last_attempt
from ..outcome import Cancel, Continue, Described, Fail, Retry, Snooze, describe_error, name_of
from ..task import Task
from .watchdog import die_with_parent

OUTCOMES = (Cancel, Snooze, Fail, Retry)  # a class that has two of them as bases means the first


class _ChildAttempt(Attempt, kw_only=True):
    """The attempt as the child sees it: its reports go to the worker. The child converts and checks them, so that an
    error reaches the handler, as it does in a thread."""

    line: _Line

    def progress(self, fraction: float, text: str = "") -> None:
        super().progress(fraction, text)
        notes = self._note()
        self.line.send("progress", (notes.fraction, notes.text))

    def log(self, text: str) -> None:
        super().log(text)
        self.line.send("log", self._note().log[-1].text)

    def say_ready(self) -> None:
        self.line.send("ready", None)


class _Line:
    """The pipe to the worker, for one job. A copy of the child, which a handler has made by a fork, sends nothing."""

    lock = threading.Lock()

    def __init__(self, pipe: Connection, token: Any) -> None:
        self.pipe, self.token, self.process = pipe, token, os.getpid()

    def send(self, kind: str, value: Any) -> None:
        if os.getpid() == self.process:
            message = _pickled((self.token, kind, value))
            with self.lock:
                self.pipe.send_bytes(message)


class _Pickler(pickle.Pickler):
    """For values that name jobs, moments and labels. A job has its app, and a timezone or a mapping may be of any
    class: some of them cannot be pickled, and the worker does not need them."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, Job):
            return msgspec.structs.replace(value, _app=None).__reduce__()
        if isinstance(value, datetime) and value.tzinfo not in (None, UTC):
            return value.astimezone(UTC).__reduce_ex__(pickle.DEFAULT_PROTOCOL)
        if isinstance(value, Mapping):
            return dict, (dict(value),)
        return NotImplemented


def _pickled(message: tuple[Any, ...]) -> bytes:
    """As `Connection.recv` reads it. An object that can be pickled but not unpickled is refused here."""
    file = io.BytesIO()
    try:
        _Pickler(file).dump(message)
        pickle.loads(file.getvalue())  # noqa: S301 - written here
    except Exception as error:
        raise InvalidInput(
            f"a value of the handler cannot be sent from its child process to the worker: {describe_error(error)}"
        ) from error
    return file.getvalue()


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
        try:
            line.send("ended", (answer, settled, settlement))
        except InvalidInput as error:
            line.send("ended", (_ended_badly(error, task), settled, None))


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
    try:
        return _described(error, task)
    except BaseException:  # raised by the exception's own methods
        described = JobError(name_of(error), "the worker could not tell how the attempt ended")
        return "error", (described, True)


def _described(error: BaseException, task: Task[..., Any] | None) -> tuple[str, Any]:
    """A subclass of an outcome is sent as the outcome, with a description that has the name of the subclass."""
    if isinstance(error, BlockConflict):
        return "BlockConflict", (str(error), error.in_settlement)
    if isinstance(error, BlockRefused):
        return "BlockRefused", (str(error),)
    for kind in OUTCOMES:
        if isinstance(error, kind):
            return kind.__name__, (describe_error(error), *_moment(error))
    return "error", (describe_error(error), task is None or task.retry_rules.allow(error))


def _moment(error: BaseException) -> tuple[Any, Any]:
    """When the job runs again. A subclass of `Retry` may lack the attributes: then the backoff of the job says it."""
    if isinstance(error, Snooze):
        return error.after, error.at
    if isinstance(error, Retry):
        return getattr(error, "after", None), getattr(error, "at", None)
    return None, None


class _FromChild(Described):
    """An outcome that a handler raised in a child. Its record has the name and the traceback that the child saw."""

    def __init__(self, error: JobError, after: float | None, at: datetime | None) -> None:
        Exception.__init__(self, error.message)
        self.error, self.retryable, self.after, self.at = error, True, after, at


_outcomes = {kind.__name__: type(kind.__name__, (_FromChild, kind), {}) for kind in OUTCOMES}


def raised(kind: str, value: Any) -> BaseException:
    """In the parent: what the handler has raised."""
    if kind in _outcomes:
        return cast("BaseException", _outcomes[kind](*value))
    if kind == "BlockConflict":
        return BlockConflict(value[0], in_settlement=value[1])
    if kind == "BlockRefused":
        return BlockRefused(*value)
    return Described(value[0], retryable=value[1])

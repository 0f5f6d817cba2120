"""One attempt, in a line: decode, call, encode, decide.

Every end becomes a settlement: no exception of a handler gets past this module. Async handlers run in the loop, in the
slot's own task; sync ones in threads; those of `isolation="process"` in child processes.
"""

from __future__ import annotations

import asyncio
import inspect
import random
import time
from collections.abc import Awaitable, Callable
from typing import Any

from ..app import Windlass
from ..attempt import Attempt, current
from ..block import BlockConflict, BlockRefused
from ..call import Call
from ..errors import InvalidInput
from ..job import Job
from ..lifecycle import COMPLETED
from ..logs import Log, job_fields
from ..outcome import (
    Continue,
    Settlement,
    Snooze,
)
from ..policy import DEFAULT
from ..task import Task
from .deadline import Deadline
from .endings import Endings, tell_what_is_ignored
from .loops import SlotTask
from .processes import ChildProcesses
from .threads import Threads

log = Log("windlass.worker")

THREADLESS_SECONDS = 1.0  # until a handler is tried again for which the system had no thread
UNREADABLE_SECONDS = 60.0  # until a job that this version cannot run is tried again, perhaps by a newer one
BLOCK_TRIES = 10  # of a handler whose transaction met another's
BLOCK_PAUSE, LONGEST_BLOCK_PAUSE = 0.02, 2.0  # seconds, the first doubled from try to try, taken in part at random
MOST_CANCELLED = 10  # times in a row that other code may cancel a job's task before that counts as its failure


Handler = Callable[[Attempt, dict[str, Any]], Awaitable[Any]]


class Executor:
    """Runs one attempt after the other, for all slots."""

    def __init__(self, app: Windlass) -> None:
        self.app = app
        self.handlers = Handlers(app)
        self.threads = self.handlers.threads
        self.endings = Endings(app)
        self.unspent = self.endings.unspent

    async def execute(self, attempt: Attempt, slot: SlotTask, began: float) -> Settlement | None:
        """The settlement to write, or None if the attempt has lost its lease. `slot` is the task that this runs in."""
        if attempt.stop is not None:  # while it waited in the buffer
            return self.endings.decide(attempt, asyncio.CancelledError(), 0.0)
        job = attempt.job
        attempt.task = slot
        current.set(attempt)
        result: object
        conflicts = 0
        deadline: Deadline | None = None
        while True:
            try:
                if conflicts:  # the other needs time to end, and those that met must not meet again
                    await asyncio.sleep(random.random() * min(BLOCK_PAUSE * 2**conflicts, LONGEST_BLOCK_PAUSE))
                task, handler = self.handlers.known.get(job.type) or self.handlers.find(job.type)
                arguments = _read(task, job)
                timeout = None if job.policy_json is None else (job.policy or DEFAULT).timeout_seconds
                call = handler(attempt, arguments)
                if timeout is not None:
                    deadline = deadline or Deadline(attempt, timeout)
                value = await (call if deadline is None else _within(deadline, call))
                result = _written(attempt, task, value)
            except BlockConflict as error:
                conflicts += 1
                if conflicts < BLOCK_TRIES and attempt.stop is None:
                    continue
                result = BlockRefused(str(error)) if error.in_settlement else error.__cause__ or error
            except BaseException as error:  # recorded first, whatever it is
                result = error
            break
        attempt.task = None
        if type(result) is asyncio.CancelledError and attempt.stop is None and slot.is_cancelled_by_others:
            result = self.unspent.snooze(job, result, "other code has cancelled its task", MOST_CANCELLED)
        elif self.unspent.counts and not isinstance(result, BlockRefused):
            self.unspent.counts.pop(job.id, None)
        if self.threads.closed and attempt.interrupter is not None:
            return None  # its thread still runs, and is left behind: its lease fences it
        if attempt.settled:
            tell_what_is_ignored(attempt, result)
            return None
        if attempt.unconfirmed_settlement is not None and not isinstance(result, BaseException) and result != "null":
            log.warning(
                "job %s: what the handler returned counts only if its own transaction was rolled back",
                job.id, extra=job_fields(job),
            )  # fmt: skip
        if type(result) is str and attempt.stop is None:
            settlement = Settlement(id=job.id, token=attempt.token, state=COMPLETED, output=result)
            return settlement if attempt.notes is None else attempt.with_notes(settlement)
        if isinstance(result, Settlement):
            return self.endings.decide(attempt, "null", 0.0) and attempt.with_notes(result)
        return self.endings.decide(attempt, result, time.perf_counter() - began)

    def close(self) -> None:
        self.handlers.close()


class Handlers:
    """How the handler of each task is called, with its middleware around it."""

    def __init__(self, app: Windlass) -> None:
        self.app = app
        self.threads = Threads()
        self.processes = ChildProcesses(self.threads)
        self.known: dict[str, tuple[Task[..., Any], Handler]] = {}

    def find(self, name: str) -> tuple[Task[..., Any], Handler]:
        """When its first job comes: a task may be registered while the worker runs, and is claimed from then on."""
        task = self.app.tasks.get(name)
        if task is None:
            raise Snooze(f"this worker has no task {name!r}", after=UNREADABLE_SECONDS)
        self.known[name] = task, self._make(task)
        return self.known[name]

    def _make(self, task: Task[..., Any]) -> Handler:
        if task.isolation == "process":
            call = self._in_process(task)
        else:
            call = self._in_loop(task) if inspect.iscoroutinefunction(task.function) else self._in_thread(task)
        for middleware in reversed(self.app.middlewares):
            call = _around(middleware, call)
        return call

    def _in_loop(self, task: Task[..., Any]) -> Handler:
        function, injected = task.function, task.signature.injected_name

        def in_loop(attempt: Attempt, arguments: dict[str, Any]) -> Awaitable[Any]:  # not async: a coroutine less
            if injected:
                arguments[injected] = attempt
            if attempt.begin is None and attempt.entering is None:
                return function(**arguments)  # type: ignore[no-any-return]
            return begun(attempt, arguments)

        async def begun(attempt: Attempt, arguments: dict[str, Any]) -> Any:
            if attempt.begin is not None:
                await attempt.begin()
            if attempt.entering is not None:
                attempt.entering(False)
            return await function(**arguments)

        return in_loop

    def _in_thread(self, task: Task[..., Any]) -> Handler:
        function, injected = task.function, task.signature.injected_name

        async def in_thread(attempt: Attempt, arguments: dict[str, Any]) -> Any:
            if injected:
                arguments[injected] = attempt
            await self._begin_in_thread(attempt)
            return await self.threads.run(attempt, _entered(attempt, lambda: function(**arguments)))

        return in_thread

    async def _begin_in_thread(self, attempt: Attempt) -> None:
        """First a thread, then the mark of a last attempt: without a thread the attempt has not begun."""
        try:
            self.threads.reserve()
        except RuntimeError as error:
            raise Snooze(f"no thread can be started: {error}", after=THREADLESS_SECONDS) from error
        try:
            if attempt.begin is not None:
                await attempt.begin()
        except BaseException:
            self.threads.unreserve()
            raise

    def _in_process(self, task: Task[..., Any]) -> Handler:
        async def in_process(attempt: Attempt, arguments: dict[str, Any]) -> Any:
            return await self.processes.run(attempt, task)

        return in_process

    def close(self) -> None:
        self.threads.close()
        self.processes.close()


def _entered(attempt: Attempt, function: Callable[[], Any]) -> Callable[[], Any]:
    """The call. Before it, its thread says that it has begun, if that is waited for."""
    entering = attempt.entering
    return function if entering is None else lambda: (entering(True), function())[1]


def _around(middleware: Callable[..., Any], call: Handler) -> Handler:
    async def wrapped(attempt: Attempt, arguments: dict[str, Any]) -> Any:
        return await middleware(attempt, lambda: call(attempt, arguments))

    return wrapped


def _read(task: Task[..., Any], job: Job) -> dict[str, Any]:
    try:
        return task.signature.decode_arguments(job.input_json)
    except InvalidInput as error:
        raise Snooze(f"this version cannot read the payload: {error}", after=UNREADABLE_SECONDS) from error


def _written(attempt: Attempt, task: Task[..., Any], value: Any) -> Settlement | str:
    """The result as it is stored. A handler that has settled its job itself need not return one."""
    if type(value) is Continue:
        return attempt.completion(value)
    if type(value) is Call:  # a value of the handler may have a __class__ that raises
        raise TypeError(f"{task.name} returned a call. To continue the chain with it, return Continue(…)")
    if value is None and attempt.unconfirmed_settlement is not None:
        return "null"
    return task.signature.encode_result(value)


async def _within(deadline: Deadline, call: Awaitable[Any]) -> Any:
    with deadline:
        return await call

"""The engine: the store, the tasks and the options of one app, and how an operation runs on them.

The other modules of the app are functions of an engine. `Windlass` adds the public methods to it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from uuid import UUID

import msgspec

from . import codec
from .block import Block, joined
from .call import check_name
from .defaults import Defaults
from .errors import InvalidInput, SchemaMismatch
from .forks import PerLoop, PerProcess
from .hooks import EnqueuedHooks, Hooks
from .identity import Identity
from .job import Job
from .operation import Flow, Operation, Runs, arun_flow, run_flow
from .policy import Policy
from .schedule import Schedule
from .stores.store import Purpose, Store

if TYPE_CHECKING:
    from .task import Task

T = TypeVar("T")


class Unprepared(NamedTuple):
    """A step of a flow that needs no schema: it makes one."""

    store: Store
    make: Callable[[], Operation[Any]]

    def run(self, runs: Runs, /) -> Any:
        return self.store.connections.run(self.make)

    async def arun(self, runs: Runs, /) -> Any:
        return await self.store.connections.arun(self.make)


class SchemaCheck:
    """Of one process, since a forked child has no part of its parent's database in memory."""

    def __init__(self) -> None:
        self.is_done = False
        self.lock = threading.Lock()


class Engine:
    """What the parts of an app share."""

    def __init__(
        self, store: Store, defaults: Defaults, *, auto_migrate: bool, max_payload: int, make_id: Callable[[], UUID],
        max_blockers: int,
    ) -> None:  # fmt: skip
        self.store, self.defaults, self.default_policy = store, defaults, defaults.policy()
        self.auto_migrate, self.max_payload, self.make_id = auto_migrate, max_payload, make_id
        self.max_blockers = max_blockers
        self.identity = Identity()
        self.tasks: dict[str, Task[..., Any]] = {}
        self.task_names: list[str] = []
        self.policies: dict[str, Policy] = {}
        self.middlewares: list[Callable[..., Any]] = []
        self.hooks: Hooks = {}
        self.enqueued_hooks = EnqueuedHooks(self.hooks)
        self.declared_schedules: dict[str, Schedule] = {}
        self.unwritten_schedules: set[str] = set()
        self._schema_check = PerProcess(SchemaCheck)
        self._schema_check_of_loop = PerLoop(asyncio.Lock)

    # Tasks

    def add_tasks(self, tasks: Mapping[str, Task[..., Any]]) -> None:
        """Add all or none, under these names. The tasks are bound to this app already."""
        for name in tasks:
            if name in self.tasks:
                raise InvalidInput(f"there is a task {name!r} already: give this one another name, @app.task('…')")
            check_name("task", name)
        self.tasks.update(tasks)
        # The policies first: a claim that knows the name only would write the default policy into the row.
        self.policies = self.policies | {name: task.policy for name, task in tasks.items()}
        self.task_names = sorted(self.tasks)

    # Operations

    def run_operation(self, make: Callable[[], Operation[T]], connection: Any = None) -> T:
        """One operation, one transaction. With `connection`: a part of the caller's transaction."""
        self.prepare()
        if connection is not None:
            return self.store.connections.run_on(connection, make)
        return self.store.connections.run(make, self._purpose())

    async def arun_operation(self, make: Callable[[], Operation[T]], connection: Any = None) -> T:
        await self.aprepare()
        if connection is not None:
            return await self.store.connections.arun_on(connection, make)
        return await self.store.connections.arun(make, self._purpose())

    def run_for_worker(self, make: Callable[[], Operation[T]]) -> T:
        """`run_operation` for the parts of a worker: on connections that no handler can take."""
        self.prepare()
        return self.store.connections.run(make, Purpose.WORKER)

    async def arun_for_worker(self, make: Callable[[], Operation[T]]) -> T:
        await self.aprepare()
        return await self.store.connections.arun(make, Purpose.WORKER)

    def _purpose(self) -> Purpose:
        return Purpose.CALLS if self.current_block() is None else Purpose.BLOCKS

    def current_block(self, connection: Any = None) -> Block | None:
        """The open block of `attempt.transaction()` that this code runs in: any, or that of this connection. The caller
        asks before an operation begins, because the operation may run in another thread."""
        block = joined.get()
        if block is None or block.app is not self or not block.is_open:
            return None
        return block if connection is None or connection is block.connection else None

    # The schema

    @property
    def is_ready(self) -> bool:
        """Whether this process has checked the schema."""
        return self._schema_check.get().is_done

    @is_ready.setter
    def is_ready(self, is_ready: bool) -> None:
        self._schema_check.get().is_done = is_ready

    def prepare(self) -> None:
        """Check the schema before its first use, and migrate it where that is allowed."""
        if not self.is_ready:
            with self._schema_check.get().lock:
                run_flow(self._prepare(), self)

    async def aprepare(self) -> None:
        """One task of an event loop does it, the others wait. If it fails, the others try at the same time: one after
        the other, each would wait for the time-outs of all before it."""
        if self.is_ready:
            return
        lock = self._schema_check_of_loop.get()
        is_first = not lock.locked()
        async with lock:
            if is_first:
                await arun_flow(self._prepare(), self)
        await arun_flow(self._prepare(), self)

    def _prepare(self) -> Flow[None]:
        if self.is_ready:  # another thread or task has done it meanwhile
            return
        if not (yield Unprepared(self.store, self.store.check_schema)):
            if not self.auto_migrate:
                raise SchemaMismatch(
                    "the schema is missing or too old, and auto_migrate=False: run app.migrate(), or windlass migrate"
                )
            yield Unprepared(self.store, self.store.migrate)
        self.is_ready = True

    # Lifetime

    def close(self) -> None:
        """Close connections and threads. The app can be used again: it opens new ones."""
        self.enqueued_hooks.finish()
        self.store.wakeup.close()
        self.store.connections.close()
        self.is_ready = False  # a database in memory is gone

    async def aclose(self) -> None:
        await asyncio.to_thread(self.enqueued_hooks.finish)
        await asyncio.to_thread(self.store.wakeup.close)
        await self.store.connections.aclose()
        self.is_ready = False

    # Jobs

    def bind(self, job: Job, *, created: bool = True) -> Job:
        """The job with its methods."""
        if not created:  # in one batch, the job that was created may be the same object
            job = msgspec.structs.replace(job, created=False)
        msgspec.structs.force_setattr(job, "_app", self)
        return job

    def encode_output(self, job: Job, output: Any) -> str:
        task = self.tasks.get(job.type)
        return codec.encode(output, self.max_payload) if task is None else task.signature.encode_output(output)


def migrate(engine: Engine) -> Flow[list[str]]:
    """Create the schema or bring it up to date: the names of the migrations that were applied."""
    names: list[str] = yield Unprepared(engine.store, engine.store.migrate)
    engine.is_ready = True
    return names

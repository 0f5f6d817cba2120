"""`Windlass`: the public face. It knows the tasks, hands operations to the store, and sends hints after commits."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar
from uuid import UUID

import msgspec
from uuid_utils.compat import uuid7

from . import codec
from .awaiting import Awaiting
from .call import check_name
from .claiming import Claiming
from .defaults import Defaults, check_defaults
from .errors import InvalidInput, SchemaMismatch
from .explaining import Explaining
from .graph import Graph
from .identity import Identity
from .job import Job
from .operation import Operation
from .policy import Policy
from .scheduling import Scheduling
from .sending import Sending
from .stores.opening import open_store
from .stores.store import Purpose
from .task import Task
from .tasks import Tasks
from .working import Working

T = TypeVar("T")


class Windlass(Working, Sending, Awaiting, Claiming, Explaining, Graph, Scheduling):
    """A job queue in a database: `Windlass("sqlite:///jobs.db")`, `postgresql://…`, `mongodb://…`."""

    def __init__(
        self,
        url: str | None = None,
        *,
        schema: str = "public",
        prefix: str = "windlass_",
        auto_migrate: bool = True,
        max_payload: int = codec.MAX_PAYLOAD_BYTES,
        make_id: Callable[[], UUID] = uuid7,
        notify: bool = True,
        pool_size: int = 10,
        max_blockers: int = 10_000,
        defaults: Defaults | None = None,
    ) -> None:
        self.defaults = check_defaults(defaults)
        self.default_policy = self.defaults.policy()
        self.url = url or os.environ.get("WINDLASS_URL") or "sqlite:///windlass.db"
        self.store = open_store(self.url, schema=schema, prefix=prefix, pool_size=pool_size)
        self.tasks: dict[str, Task[..., Any]] = {}
        self.task_names: list[str] = []
        self.policies: dict[str, Policy] = {}
        self.store.notify = notify
        self.auto_migrate, self.max_payload, self.make_id = auto_migrate, max_payload, make_id
        self.max_blockers = max_blockers
        self.identity = Identity()
        self.middlewares: list[Callable[..., Any]] = []
        self.hooks: dict[str, list[Callable[[Any], Any]]] = {}
        self._telling = {}
        self._ready = False
        self._migrating = threading.Lock()

    @property
    def notify(self) -> bool:
        """Whether hints are sent."""
        return self.store.notify

    # Tasks

    def _declare_task(self, task: Task[..., Any]) -> None:
        self._refuse_known([task.name])
        task.bind(self, task.name)
        self._add({task.name: task})

    def include(self, tasks: Tasks, prefix: str = "") -> None:
        """Make the tasks of a module that knows no app tasks of this one, their names after `prefix`."""
        if not isinstance(tasks, Tasks):
            raise InvalidInput(f"include takes the Tasks() of a module, not {tasks!r}")
        if not isinstance(prefix, str):
            raise InvalidInput(f"prefix is a string, not {prefix!r}")
        tasks.include_in(self, prefix)

    def add_tasks(self, tasks: Mapping[str, Task[..., Any]]) -> None:
        """All of a collection, or none. The app has tasks of its own; the originals are bound to it as well."""
        self._refuse_known(tasks)
        for name in tasks:
            check_name("task", name)
        self._add({name: task.copy_for(self, name) for name, task in tasks.items()})
        for name, task in tasks.items():
            task.bind(self, name)

    def _refuse_known(self, names: Iterable[str]) -> None:
        for name in names:
            if name in self.tasks:
                raise InvalidInput(f"there is a task {name!r} already: give this one another name, @app.task('…')")

    def _add(self, tasks: dict[str, Task[..., Any]]) -> None:
        self.tasks.update(tasks)
        # Its policy first: a claim between the two would write the default into the row, for good.
        self.policies = self.policies | {name: task.policy for name, task in tasks.items()}
        self.task_names = sorted(self.tasks)

    # Driving operations

    def run_operation(self, make: Callable[[], Operation[T]]) -> T:
        self.prepare()
        return self.store.connections.run(make, self._purpose())

    async def arun_operation(self, make: Callable[[], Operation[T]]) -> T:
        await self.aprepare()
        return await self.store.connections.arun(make, self._purpose())

    def _purpose(self) -> Purpose:
        return Purpose.CALLS if self._block(None) is None else Purpose.BLOCKS

    def run_for_worker(self, make: Callable[[], Operation[T]]) -> T:
        """`run_operation` for the parts of a worker: on connections that no handler can take."""
        self.prepare()
        return self.store.connections.run(make, Purpose.WORKER)

    async def arun_for_worker(self, make: Callable[[], Operation[T]]) -> T:
        await self.aprepare()
        return await self.store.connections.arun(make, Purpose.WORKER)

    def prepare(self) -> None:
        """The schema, before the first use."""
        if self._ready:
            return
        with self._migrating:
            if not self._ready:
                if not self.store.connections.run(self.store.check_schema):
                    self._may_migrate()
                    self.store.connections.run(self.store.migrate)
                self._ready = True

    async def aprepare(self) -> None:
        if not self._ready:
            if not await self.store.connections.arun(self.store.check_schema):
                self._may_migrate()
                await self.store.connections.arun(self.store.migrate)
            self._ready = True

    def _may_migrate(self) -> None:
        if not self.auto_migrate:
            raise SchemaMismatch(
                "the schema is missing or too old, and auto_migrate=False says that someone else sees to it: "
                "run app.migrate(), or windlass migrate"
            )

    def migrate(self) -> list[str]:
        """Create the schema or bring it up to date: the names of what was applied."""
        names = self.store.connections.run(self.store.migrate)
        self._ready = True
        return names

    async def amigrate(self) -> list[str]:
        names = await self.store.connections.arun(self.store.migrate)
        self._ready = True
        return names

    def close(self) -> None:
        """Let go of connections and threads. The app can be used again: it opens new ones."""
        self._stop_telling()
        self.store.wakeup.close()
        self.store.connections.close()
        self._ready = False  # what was in memory is gone

    async def aclose(self) -> None:
        await asyncio.to_thread(self._stop_telling)
        await asyncio.to_thread(self.store.wakeup.close)
        await self.store.connections.aclose()
        self._ready = False

    def _encode_output(self, job: Job, output: Any) -> str:
        task = self.tasks.get(job.type)
        return codec.encode(output, self.max_payload) if task is None else task.signature.encode_output(output)

    def bind(self, job: Job, *, created: bool = True) -> Job:
        """The job with its methods."""
        if not created:  # in one batch, the job that was created may be the same object
            job = msgspec.structs.replace(job, created=False)
        msgspec.structs.force_setattr(job, "_app", self)
        return job

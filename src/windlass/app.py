"""`Windlass`: the public face. It lists the public methods; each is a function of the engine in the module named here.

A pair `name, aname = …` is one function in both ways. Its signature and its docstring are those of the function.
"""

from __future__ import annotations

import builtins
import os
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, overload
from uuid import UUID

from uuid_utils.compat import uuid7

# With an underscore: the class has a method of the same name.
from . import actions, bulk, codec, maintenance, reads
from . import claim as _claim
from . import dependents as _dependents
from . import doctor as _doctor
from . import enqueue as _enqueue
from . import explain as _explain
from . import results as _results
from . import schedules as _schedules
from .call import Call
from .declare import task_decorator
from .decorator import Decorator
from .defaults import Defaults, check_defaults
from .duration import Duration
from .engine import Engine, migrate
from .errors import InvalidInput
from .events import check_event
from .job import Job
from .operation import Operation, arun_flow, flow_twins, joining_twins, run_flow, twins
from .outcome import Settlement
from .plugins import check_store, find_store
from .policy import UNSET
from .schedule import CatchUp, Schedule
from .stores.store import Admitted, Store
from .stores.urls import without_password
from .task import Task
from .tasks import Tasks

if TYPE_CHECKING:
    from .worker.worker import Worker

F = TypeVar("F", bound=Callable[..., Any])
R = TypeVar("R")

Queues: TypeAlias = Sequence[str] | Mapping[str, int | None]  # by name, or each with a limit of jobs at once


class Windlass(Engine):
    """A job queue in a database: `Windlass("sqlite:///jobs.db")`, `postgresql://…`, `mongodb://…`; or, with `store=`,
    in a store of yours."""

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
        store: Store | None = None,
    ) -> None:
        if store is None:
            if url == "":
                raise InvalidInput(
                    "the URL of the store is empty; leave it out for $WINDLASS_URL or sqlite:///windlass.db"
                )
            self.url = url or os.environ.get("WINDLASS_URL") or "sqlite:///windlass.db"
            store = find_store(self.url, schema=schema, prefix=prefix, pool_size=pool_size)
        elif url is not None or (schema, prefix, pool_size) != ("public", "windlass_", 10):
            raise InvalidInput("url=, schema=, prefix= and pool_size= do not go with store=: the store has its own")
        else:
            self.url = str(getattr(check_store(store), "url", type(store).__name__))
        super().__init__(
            store, check_defaults(defaults),
            auto_migrate=auto_migrate, max_payload=max_payload, make_id=make_id, max_blockers=max_blockers,
        )  # fmt: skip
        self.store.notify = notify

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {without_password(self.url)}>"

    @property
    def notify(self) -> bool:
        """Whether hints are sent."""
        return self.store.notify

    migrate, amigrate = flow_twins(migrate)

    # Tasks

    @property
    def task(self) -> Decorator:
        """Make a task of a function: `@app.task`, or `@app.task(queue="mail", max_attempts=5)`. `help(app.task)` names
        all options."""
        return task_decorator(self._declare_task)

    def _declare_task(self, task: Task[..., Any]) -> None:
        task.bind(self, task.name)
        self.add_tasks({task.name: task})

    def include(self, tasks: Tasks, prefix: str = "") -> None:
        """Add the tasks of a module that knows no app, with `prefix` before their names."""
        if not isinstance(tasks, Tasks):
            raise InvalidInput(f"include takes the Tasks() of a module, not {tasks!r}")
        if not isinstance(prefix, str):
            raise InvalidInput(f"prefix is a string, not {prefix!r}")
        tasks.include_in(self, prefix)

    # Enqueue

    def enqueue_many(self, calls: Iterable[Call[R]], connection: Any = UNSET) -> builtins.list[Job[R]]:
        """Enqueue calls together, all or none; with `connection`, in your transaction."""
        return run_flow(_enqueue.enqueue_many(self, calls, connection), self)

    async def aenqueue_many(self, calls: Iterable[Call[R]], connection: Any = UNSET) -> builtins.list[Job[R]]:
        return await arun_flow(_enqueue.enqueue_many(self, calls, connection), self)

    def call(self, type: str, input: Mapping[str, Any] | None = None, *, strict: bool = False, **options: Any) -> Call:
        """A call by name: of a task of this app or, unless it is `strict`, of one that only its worker knows."""
        return _enqueue.make_call(self, type, input, strict, options)

    def enqueue(
        self, type: str, input: Mapping[str, Any] | None = None, *, connection: Any = UNSET, strict: bool = False,
        **options: Any,
    ) -> Job:  # fmt: skip
        """Enqueue by name, where the handler is not importable; `input` has the arguments by name. `strict`: only a
        task of this app."""
        return self.enqueue_many([self.call(type, input, strict=strict, **options)], connection)[0]

    async def aenqueue(
        self, type: str, input: Mapping[str, Any] | None = None, *, connection: Any = UNSET, strict: bool = False,
        **options: Any,
    ) -> Job:  # fmt: skip
        return (await self.aenqueue_many([self.call(type, input, strict=strict, **options)], connection))[0]

    admit_all, aadmit_all = flow_twins(_enqueue.admit_all)

    def _admit(self) -> Operation[Admitted]:
        return _enqueue.admit(self)

    # Read

    get, aget = joining_twins(reads.get)
    require, arequire = twins(reads.require)
    counts, acounts = twins(reads.counts)
    blockers, ablockers = joining_twins(_dependents.blockers)
    dependents, adependents = joining_twins(_dependents.dependents)
    chains, achains = joining_twins(_dependents.chains)
    explain, aexplain = twins(_explain.explain)
    result, aresult = flow_twins(_results.result)
    results, aresults = flow_twins(_results.results)

    # Act on one job

    cancel, acancel = joining_twins(actions.cancel)
    retry, aretry = joining_twins(actions.retry)
    run_now, arun_now = joining_twins(actions.run_now)
    complete, acomplete = joining_twins(actions.complete)
    fail, afail = joining_twins(actions.fail)
    delete, adelete = joining_twins(actions.delete)

    # Act on many

    cancel_many, acancel_many = flow_twins(bulk.cancel_many)
    retry_many, aretry_many = flow_twins(bulk.retry_many)
    run_now_many, arun_now_many = flow_twins(bulk.run_now_many)
    delete_many, adelete_many = flow_twins(bulk.delete_many)

    # Pull jobs

    claim, aclaim = flow_twins(_claim.claim)

    # Queues and maintenance

    pause, apause = twins(maintenance.pause)
    resume, aresume = twins(maintenance.resume)
    paused, apaused = twins(maintenance.paused)
    workers, aworkers = twins(maintenance.workers)
    rescue, arescue = flow_twins(maintenance.rescue)
    expire, aexpire = flow_twins(maintenance.expire)
    prune, aprune = flow_twins(maintenance.prune)
    vacuum, avacuum = twins(maintenance.vacuum)

    def rescue_some(self, limit: int, stale_before: datetime | None = None) -> Operation[builtins.list[Settlement]]:
        return maintenance.rescue_some(self, limit, stale_before)

    # Schedules

    @overload
    def schedule(
        self, cron: str, call: None = None, *, timezone: str = ..., catch_up: CatchUp = ..., name: str | None = ...
    ) -> Decorator: ...
    @overload
    def schedule(
        self, cron: str, call: Call | Task[[], Any], *, timezone: str = ..., catch_up: CatchUp = ...,
        name: str | None = ...,
    ) -> Schedule: ...  # fmt: skip
    def schedule(
        self, cron: str, call: Call | Task[[], Any] | None = None, *, timezone: str = "UTC", catch_up: CatchUp = "one",
        name: str | None = None,
    ) -> Any:  # fmt: skip
        """Enqueue a call at each tick of a cron line: `app.schedule("0 3 * * *", report.call(day="today"))`, or
        `@app.schedule("@hourly")` over a task that needs no arguments.

        Five fields, `@hourly`, `@daily`, …, or `@every 90s`. `catch_up` says what happens to ticks while no worker
        runs: "skip" them, make up for them all by "one" job, or run "all". Its name is the task's unless you give one;
        the same name given again replaces the schedule.
        """
        declaration = _schedules.check_declaration(cron, timezone, catch_up, name)

        def declare(target: Any) -> Schedule:
            made = declaration.make(target)
            declaration.add(self, made)
            if self.is_ready:
                self.write_schedules(all=False)
            return made

        def decorate(function: Any) -> Task[..., Any]:
            task: Task[..., Any] = function if isinstance(function, Task) else self.task(function)
            declare(task)
            return task

        return decorate if call is None else declare(call)

    def aschedule(
        self, cron: str, call: Call | Task[[], Any], *, timezone: str = "UTC", catch_up: CatchUp = "one",
        name: str | None = None,
    ) -> Coroutine[Any, Any, Schedule]:  # fmt: skip
        """`schedule`, written before it returns."""
        declaration = _schedules.check_declaration(cron, timezone, catch_up, name)
        made = declaration.make(call)

        async def write() -> Schedule:
            declaration.add(self, made)
            await self.awrite_schedules(all=False)
            return made

        return write()

    write_schedules, awrite_schedules = flow_twins(_schedules.write_schedules)
    pause_schedule, apause_schedule = flow_twins(_schedules.pause_schedule)
    resume_schedule, aresume_schedule = flow_twins(_schedules.resume_schedule)
    run_schedule, arun_schedule = flow_twins(_schedules.run_schedule)
    delete_schedule, adelete_schedule = flow_twins(_schedules.delete_schedule)
    schedules, aschedules = flow_twins(_schedules.schedules)

    examine, aexamine = flow_twins(_doctor.examine)

    # Workers and their events

    def worker(
        self, queues: Queues | None = None, concurrency: int = 50, *, poll_interval: Duration = 5,
        rescue_interval: Duration = 5, grace: Duration = 30, until_idle: bool = False, max_jobs: int | None = None,
    ) -> Worker:  # fmt: skip
        """A worker for your own event loop: `async with app.worker(["mail"]): …`, or `await app.worker().run()`.

        `queues`: all, those named, or `{"mail": 10}`, at most so many jobs of it at once. `grace`: how long running
        jobs may take to end after a stop. The worker ends by itself when no job is due (`until_idle`), or after so many
        jobs (`max_jobs`).
        """
        from .worker.worker import Worker

        return Worker(
            self, queues, concurrency, poll_interval=poll_interval, rescue_interval=rescue_interval, grace=grace,
            until_idle=until_idle, max_jobs=max_jobs,
        )  # fmt: skip

    def run_worker(
        self, queues: Queues | None = None, concurrency: int = 50, *, poll_interval: Duration = 5,
        rescue_interval: Duration = 5, grace: Duration = 30, until_idle: bool = False, max_jobs: int | None = None,
    ) -> int:  # fmt: skip
        """Run a worker in an event loop of its own until a signal stops it (or it is idle): how many jobs it ran."""
        from .worker.alone import refuse_in_loop, run_alone

        worker = self.worker(
            queues, concurrency, poll_interval=poll_interval, rescue_interval=rescue_interval, grace=grace,
            until_idle=until_idle, max_jobs=max_jobs,
        )  # fmt: skip

        refuse_in_loop()

        async def work() -> int:
            try:
                return await worker.run()
            finally:
                await self.store.connections.aclose_loop()

        return run_alone(worker, work)

    async def arun_worker(
        self, queues: Queues | None = None, concurrency: int = 50, *, poll_interval: Duration = 5,
        rescue_interval: Duration = 5, grace: Duration = 30, until_idle: bool = False, max_jobs: int | None = None,
    ) -> int:  # fmt: skip
        worker = self.worker(
            queues, concurrency, poll_interval=poll_interval, rescue_interval=rescue_interval, grace=grace,
            until_idle=until_idle, max_jobs=max_jobs,
        )  # fmt: skip
        return await worker.run()

    def middleware(self, function: F) -> F:
        """Put `async def around(attempt, call_next)` around each attempt; `await call_next()` runs the handler."""
        self.middlewares.append(function)
        return function

    def on(self, event: str) -> Callable[[F], F]:
        """Call a function after each event of this name: `@app.on("failed")`. `windlass.events.EVENTS` lists the names
        and their meanings. The app that enqueues a job calls the function for "enqueued", a worker calls it for all
        other events."""
        check_event(event)

        def register(function: F) -> F:
            self.hooks.setdefault(event, []).append(function)
            return function

        return register

    def tell_enqueued(self, jobs: Sequence[Job], connection: Any = None) -> None:
        """Call the hooks for "enqueued" once these jobs are committed."""
        self.enqueued_hooks.tell(jobs, connection)

    # Last: from here on, `list` means this method.
    list, alist = joining_twins(reads.list_)

"""`Windlass`: the public face. It knows the tasks, hands operations to the store, and sends hints after commits."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeAlias, TypeVar, overload
from uuid import UUID, uuid4

import msgspec
from uuid_utils.compat import uuid7

from . import codec
from .attempt import Attempt
from .awaiting import Awaiting
from .backoff import Backoff, as_backoff
from .call import check_name, check_names, check_priority
from .duration import Duration, to_seconds
from .errors import InvalidInput, SchemaMismatch
from .explaining import Explaining
from .identity import Identity
from .job import Job
from .lifecycle import PENDING
from .operation import Operation
from .policy import UNSET, Policy, Unset, attempts_option, keep_option, seconds_option
from .scheduling import Scheduling
from .sending import Sending
from .stores.opening import open_store
from .stores.store import ClaimRequest, Purpose
from .task import Decorator, Task

if TYPE_CHECKING:
    from .worker.worker import Worker

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

Queues: TypeAlias = Sequence[str] | Mapping[str, int | None]  # by name, or each with how many of it at once

LOCKED_SECONDS = 5.0  # that the next of one order key is waited for where somebody has it locked: a slow commit
PAUSES = 0.01, 0.05  # seconds between looks: the first, and the longest


class Windlass(Sending, Awaiting, Explaining, Scheduling):
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
    ) -> None:
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
        self._ready = False
        self._migrating = threading.Lock()

    @property
    def notify(self) -> bool:
        """Whether hints are sent."""
        return self.store.notify

    # Tasks

    @overload
    def task(self, name: Callable[Concatenate[Attempt, P], R], /) -> Task[P, R]: ...
    @overload
    def task(self, name: Callable[P, R], /) -> Task[P, R]: ...
    @overload
    def task(
        self, name: str | None = None, *, queue: str = ..., priority: int = ..., max_attempts: int | None = ...,
        backoff: Backoff | Duration | Unset = ..., timeout: Duration | None = ..., lease: Duration = ...,
        keep: Duration | None = ..., isolation: str | None = ..., redact: Sequence[str] = ...,
    ) -> Decorator: ...  # fmt: skip
    def task(
        self,
        name: Any = None,
        *,
        queue: str = "default",
        priority: int = 0,
        max_attempts: int | None = 20,
        backoff: Backoff | Duration | Unset = UNSET,
        timeout: Duration | None = None,
        lease: Duration = 60,
        keep: Duration | Unset | None = UNSET,
        isolation: str | None = None,
        redact: Sequence[str] = (),
    ) -> Any:
        """Make a task of a function: `@app.task`, or `@app.task(queue="mail", max_attempts=5)`."""
        if callable(name):
            return self.task()(name)
        default = Policy()
        policy = Policy(
            max_attempts=attempts_option(max_attempts, default.max_attempts),
            lease_seconds=seconds_option("lease", lease, None) or default.lease_seconds,
            keep_seconds=keep_option(keep, default.keep_seconds),
            backoff=default.backoff if isinstance(backoff, Unset) else as_backoff(backoff),
            timeout_seconds=seconds_option("timeout", timeout, None),
            redact=tuple(redact),
        )
        check_name("queue", queue)
        check_priority(priority)
        check_names("redact", redact)
        if isolation not in (None, "process"):
            raise InvalidInput(f"isolation is 'process' or None, not {isolation!r}")

        def register(function: Callable[..., Any]) -> Task[..., Any]:
            title = check_name("task", name or getattr(function, "__name__", ""))
            if title in self.tasks:
                raise InvalidInput(f"there is a task {title!r} already: give this one another name, @app.task('…')")
            task: Task[..., Any] = Task(self, function, title, queue=queue, priority=priority, policy=policy)
            task.isolation = isolation
            unknown = [argument for argument in redact if argument not in task.signature.names]
            if unknown:
                raise InvalidInput(f"{title}: redact names {', '.join(unknown)}, which is no argument of it")
            self.tasks[title] = task
            self.task_names, self.policies = sorted(self.tasks), self.policies | {title: policy}
            return task

        return register

    # Driving operations

    def run_operation(self, make: Callable[[], Operation[T]]) -> T:
        self.prepare()
        return self.store.connections.run(make, self._purpose())

    async def arun_operation(self, make: Callable[[], Operation[T]]) -> T:
        await self.aprepare()
        return await self.store.connections.arun(make, self._purpose())

    def _purpose(self) -> Purpose:
        return Purpose.CALLS if self._joined(UNSET) is None else Purpose.BLOCKS

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
        self.store.wakeup.close()
        self.store.connections.close()
        self._ready = False  # what was in memory is gone

    async def aclose(self) -> None:
        await asyncio.to_thread(self.store.wakeup.close)
        await self.store.connections.aclose()
        self._ready = False

    # Claiming

    def _claim(
        self,
        limit: int,
        queues: Sequence[str] | None,
        types: Sequence[str] | None,
        order_key: str | None,
        tenant: str | None,
        lease: Duration | None,
        worker: str | None,
    ) -> Operation[list[Attempt]]:
        if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= 10_000:
            raise InvalidInput(f"limit is a number from 1 to 10,000, not {limit!r}")
        check_names("queues", queues)
        check_names("types", types)
        if tenant is not None and order_key is None:
            raise InvalidInput("tenant goes with order_key: it says whose key is meant; workers serve all tenants")
        names = list(queues) if queues is not None else (yield from self.store.live_queues())
        attempts: list[Attempt] = []
        for queue in names:
            token = uuid4()
            jobs = yield from self.store.claim(
                ClaimRequest(
                    queue=check_name("queue", queue),
                    limit=limit - len(attempts),
                    token=token,
                    worker=worker or self.identity.name,
                    types=types,
                    order_key=order_key,
                    tenant=tenant,
                    policies={name: task.policy for name, task in self.tasks.items()},
                    lease_seconds=None if lease is None else to_seconds(lease),
                )
            )
            attempts += [Attempt(self, self.bind(job), token) for job in jobs]
            if len(attempts) >= limit:
                break
        waited = [attempt for attempt in attempts if attempt.job.blockers_left is not None]
        if waited:
            found = yield from self.store.blockers([attempt.job.id for attempt in waited])
            for attempt in waited:
                attempt.had(found.get(attempt.job.id, ()))
        return attempts

    def claim(
        self, limit: int = 10, *, queues: Sequence[str] | None = None, types: Sequence[str] | None = None,
        order_key: str | None = None, tenant: str | None = None, lease: Duration | None = 60, worker: str | None = None,
    ) -> list[Attempt]:  # fmt: skip
        """Take up to `limit` due jobs for a loop of one's own: of all `queues` and `types` or of those named, or the
        next of one `order_key` (of a `tenant`); for a `lease`, in the name of a `worker`."""
        while self.run_operation(self._admit).jobs:
            pass
        claim = partial(self._claim, limit, queues, types, order_key, tenant, lease, worker)
        for pause in _while_locked():
            attempts = self.run_operation(claim)
            if attempts or order_key is None:
                break
            if not self.run_operation(partial(self._is_locked, order_key, tenant, queues, types)):
                break
            time.sleep(pause)
        return attempts

    async def aclaim(
        self, limit: int = 10, *, queues: Sequence[str] | None = None, types: Sequence[str] | None = None,
        order_key: str | None = None, tenant: str | None = None, lease: Duration | None = 60, worker: str | None = None,
    ) -> list[Attempt]:  # fmt: skip
        while (await self.arun_operation(self._admit)).jobs:
            pass
        claim = partial(self._claim, limit, queues, types, order_key, tenant, lease, worker)
        for pause in _while_locked():
            attempts = await self.arun_operation(claim)
            if attempts or order_key is None:
                break
            if not await self.arun_operation(partial(self._is_locked, order_key, tenant, queues, types)):
                break
            await asyncio.sleep(pause)
        return attempts

    def _is_locked(
        self, order_key: str, tenant: str | None, queues: Sequence[str] | None, types: Sequence[str] | None
    ) -> Operation[bool]:
        """Whether the next of this key is due and was passed over, since someone has it locked for a moment. Whoever
        asks for one key and is told of nothing may wait for the next hint, which nobody would send."""
        head = yield from self.store.head(tenant or "", order_key)
        if head is None or head.state != PENDING or (queues is not None and head.queue not in queues):
            return False
        if (types is not None and head.type not in types) or head.queue in (yield from self.store.paused()):
            return False
        now = yield from self.store.now()
        return head.run_at <= now and (head.expires_at is None or head.expires_at > now)

    # Working

    def worker(
        self, queues: Queues | None = None, concurrency: int = 50, *, poll_interval: Duration = 5,
        rescue_interval: Duration = 5, grace: Duration = 30, until_idle: bool = False, max_jobs: int | None = None,
    ) -> Worker:  # fmt: skip
        """A worker for your own event loop: `async with app.worker(["mail"]): …`, or `await app.worker().run()`.

        `queues`: all, those named, or `{"mail": 10}`, so many of it at once. `grace`: how long running jobs may take to
        end when it is stopped. It ends by itself when nothing is due (`until_idle`), or after so many (`max_jobs`).
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
        """Work, in an event loop of its own, until stopped by a signal (or idle): how many jobs were run."""
        from .worker.loops import runner

        worker = self.worker(
            queues, concurrency, poll_interval=poll_interval, rescue_interval=rescue_interval, grace=grace,
            until_idle=until_idle, max_jobs=max_jobs,
        )  # fmt: skip

        async def work() -> int:
            worker.heed_signals()
            try:
                return await worker.run()
            finally:
                await self.store.connections.aclose_loop()

        with runner() as loop:
            return loop.run(work())

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
        """Be told, after the fact: `@app.on("failed")`; started, completed, failed, cancelled, retried, snoozed,
        rescued."""
        names = ("started", "completed", "failed", "cancelled", "retried", "snoozed", "rescued", "expired")
        if event not in names:
            raise InvalidInput(f"there is no event {event!r}; there are: {', '.join(names)}")

        def register(function: F) -> F:
            self.hooks.setdefault(event, []).append(function)
            return function

        return register

    def _encode_output(self, job: Job, output: Any) -> str:
        task = self.tasks.get(job.type)
        return codec.encode(output, self.max_payload) if task is None else task.signature.encode_result(output)

    def bind(self, job: Job, *, created: bool = True) -> Job:
        """The job with its methods."""
        if not created:  # in one batch, the job that was created may be the same object
            job = msgspec.structs.replace(job, created=False)
        msgspec.structs.force_setattr(job, "_app", self)
        return job


def _while_locked() -> Iterator[float]:
    """Pauses between looks, one at least, for as long as it is worth while."""
    pause, longest = PAUSES
    deadline = time.monotonic() + LOCKED_SECONDS
    while True:
        yield pause
        pause = min(2 * pause, longest)
        if time.monotonic() >= deadline:
            return

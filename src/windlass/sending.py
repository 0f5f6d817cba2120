"""Enqueueing: calls become jobs, all of a batch or none, with hints after the commit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from . import codec
from .block import joined
from .call import NO_OPTIONS, Call, check_blockers, check_name
from .errors import InvalidInput
from .job import Job, NewJob
from .operation import Interrupted, Operation
from .policy import UNSET, Policy, check_connection
from .stores.store import Admitted, Enqueued, Store
from .stores.wakeup import Hint

if TYPE_CHECKING:
    from .task import Task

T = TypeVar("T")

ADMITTED_AT_ONCE = 500


class Sending:
    """Part of `Windlass`."""

    store: Store
    tasks: dict[str, Task[..., Any]]
    max_payload: int
    max_blockers: int
    make_id: Callable[[], UUID]

    def run_operation(self, make: Callable[[], Operation[T]]) -> T:
        raise NotImplementedError

    async def arun_operation(self, make: Callable[[], Operation[T]]) -> T:
        raise NotImplementedError

    def prepare(self) -> None:
        raise NotImplementedError

    async def aprepare(self) -> None:
        raise NotImplementedError

    def bind(self, job: Job, *, created: bool = True) -> Job:
        raise NotImplementedError

    def _new_jobs(self, calls: Iterable[Call]) -> list[NewJob]:
        if not isinstance(calls, Iterable):
            raise InvalidInput(f"enqueue_many takes a list of calls, not {type(calls).__name__}")
        jobs = []
        for call in calls:
            if not isinstance(call, Call):
                raise InvalidInput(f"enqueue_many takes calls, as task.call(…) makes them, not {type(call).__name__}")
            jobs.append(call.new_job(self.make_id))
        check_blockers(jobs, self.max_blockers)
        return jobs

    def _joining(self, jobs: Sequence[NewJob]) -> Operation[list[Enqueued]]:
        """In the caller's transaction, the hints with it: they are heard of when it commits, if it does."""
        done = yield from self.store.enqueue(jobs)
        yield from self.store.hint(_ready_hints(done))
        return done

    def _joined(self, connection: Any) -> Any:
        """What was given or, in a block of `attempt.transaction()`, its connection; else None."""
        connection = check_connection(connection)
        block = joined.get()
        if connection is not None or block is None or block.app is not self or not block.is_open:
            return connection
        return block.connection

    def _added(self, done: Sequence[Enqueued], *, hint: bool) -> list[Job]:
        if hint and self.store.notify:
            self.store.wakeup.send(_ready_hints(done))
        return [self.bind(one.job, created=one.created) for one in done]

    def enqueue_many(self, calls: Iterable[Call], connection: Any = UNSET) -> list[Job]:
        """Enqueue calls in one go, all or none; with `connection`, in the caller's own transaction."""
        connection = self._joined(connection)
        jobs = self._new_jobs(calls)
        if not jobs:
            return []
        if connection is not None:
            self.prepare()
            return self._added(self.store.connections.run_on(connection, lambda: self._joining(jobs)), hint=False)
        try:
            done = self.run_operation(lambda: self.store.enqueue(jobs))
        except Interrupted:  # in doubt: the ids are ours, so sending them again doubles nothing
            done = self.run_operation(lambda: self.store.enqueue(jobs, resent=True))
        if any(job.order_key or job.blockers for job in jobs):
            while self.run_operation(self._admit).jobs:
                pass
        return self._added(done, hint=True)

    async def aenqueue_many(self, calls: Iterable[Call], connection: Any = UNSET) -> list[Job]:
        connection = self._joined(connection)
        jobs = self._new_jobs(calls)
        if not jobs:
            return []
        if connection is not None:
            await self.aprepare()
            done = await self.store.connections.arun_on(connection, lambda: self._joining(jobs))
            return self._added(done, hint=False)
        try:
            done = await self.arun_operation(lambda: self.store.enqueue(jobs))
        except Interrupted:
            done = await self.arun_operation(lambda: self.store.enqueue(jobs, resent=True))
        if any(job.order_key or job.blockers for job in jobs):
            while (await self.arun_operation(self._admit)).jobs:
                pass
        return self._added(done, hint=True)

    def _admit(self) -> Operation[Admitted]:
        """Let in what waits for others or for its turn. Workers do this too, for what came in a borrowed connection."""
        return (yield from self.store.admit(ADMITTED_AT_ONCE))

    def call(self, type: str, input: Mapping[str, Any] | None = None, **options: Any) -> Call:
        """A call by name: of a task of this app, or of one that only its worker knows."""
        chosen = NO_OPTIONS.updated(options)
        task = self.tasks.get(check_name("type", type))
        given = {} if input is None else input
        if task is not None:
            return task.call_object(given, chosen)
        if not isinstance(given, Mapping):
            raise InvalidInput(f"{type}: the input is an object of arguments by name")
        encoded = codec.encode(dict(given), self.max_payload)
        policy = Policy() if chosen.overrides_policy() else None
        return Call(type=type, input=encoded, policy=policy, options=chosen)

    def enqueue(
        self, type: str, input: Mapping[str, Any] | None = None, *, connection: Any = UNSET, **options: Any
    ) -> Job:
        """Enqueue by name, where the handler is not importable; `input` has the arguments by name."""
        return self.enqueue_many([self.call(type, input, **options)], connection)[0]

    async def aenqueue(
        self, type: str, input: Mapping[str, Any] | None = None, *, connection: Any = UNSET, **options: Any
    ) -> Job:
        return (await self.aenqueue_many([self.call(type, input, **options)], connection))[0]


def _ready_hints(done: Sequence[Enqueued]) -> list[Hint]:
    queues = {one.job.queue for one in done if one.created}
    return [Hint("ready", queue) for queue in sorted(queues)]

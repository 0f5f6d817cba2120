"""Enqueueing: calls become jobs, all of a batch or none, with hints after the commit."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from . import codec
from .block import Block, joined
from .call import NO_OPTIONS, Call, check_blockers, check_name
from .errors import InvalidInput, UnknownTask
from .job import Job, NewJob
from .logs import Log
from .operation import Interrupted, Operation
from .policy import UNSET, check_connection
from .stores.store import Admitted, Enqueued, Store
from .stores.wakeup import Hint

if TYPE_CHECKING:
    from .attempt import Attempt
    from .task import Task

log = Log("windlass")

T = TypeVar("T")
R = TypeVar("R")

ADMITTED_AT_ONCE = 500


class Sending:
    """Part of `Windlass`."""

    store: Store
    tasks: dict[str, Task[..., Any]]
    max_payload: int
    max_blockers: int
    make_id: Callable[[], UUID]
    hooks: dict[str, list[Callable[[Any], Any]]]

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

    def _joining(self, jobs: Sequence[NewJob], block: Block | None) -> Operation[list[Enqueued]]:
        """In the caller's transaction, the hints with it: they are heard of when it commits, if it does."""
        if block is not None:
            yield from self._free_own_key(jobs, block.attempt)
        done = yield from self.store.enqueue(jobs)
        yield from self.store.hint(_ready_hints(done))
        return done

    def _free_own_key(self, jobs: Sequence[NewJob], attempt: Attempt) -> Operation[None]:
        """A block completes its job: that job's unique key is not in the way of the next one."""
        own = attempt.job
        for job in jobs:
            if job.unique_key is not None and (job.tenant, job.unique_key) == (own.tenant, own.unique_key):
                yield from self.store.free_own_key(own.id, attempt.token, job.unique_scope, job.unique_key)

    def _block(self, connection: Any) -> Block | None:
        """The block of `attempt.transaction()` that this is enqueued in: looked for here, since the operation may be
        carried out in another thread."""
        block = joined.get()
        if block is None or block.app is not self or not block.is_open:
            return None
        return block if connection is None or connection is block.connection else None

    def _added(self, done: Sequence[Enqueued], connection: Any = None) -> list[Job]:
        if connection is None and self.store.notify:
            self.store.wakeup.send(_ready_hints(done))
        jobs = [self.bind(one.job, created=one.created) for one in done]
        if self.hooks:
            self.tell_enqueued(jobs, connection)
        return jobs

    def tell_enqueued(self, jobs: Sequence[Job], connection: Any = UNSET) -> None:
        raise NotImplementedError

    def enqueue_many(self, calls: Iterable[Call[R]], connection: Any = UNSET) -> list[Job[R]]:
        """Enqueue calls in one go, all or none; with `connection`, in the caller's own transaction."""
        connection = check_connection(connection)
        jobs = self._new_jobs(calls)
        if not jobs:
            return []
        block = self._block(connection)
        connection = connection if block is None else block.connection
        if connection is not None:
            self.prepare()
            done = self.store.connections.run_on(connection, lambda: self._joining(jobs, block))
            return self._added(done, connection)
        try:
            done = self.run_operation(lambda: self.store.enqueue(jobs))
        except Interrupted:  # in doubt: the ids are ours, so sending them again doubles nothing
            done = self.run_operation(lambda: self.store.enqueue(jobs, resent=True))
        if any(job.order_key or job.blockers for job in jobs):
            try:
                self.admit_all()
            except Exception as error:  # the jobs are in: workers will admit them
                log.debug("%s", _not_admitted(error))
        return self._added(done)

    async def aenqueue_many(self, calls: Iterable[Call[R]], connection: Any = UNSET) -> list[Job[R]]:
        connection = check_connection(connection)
        jobs = self._new_jobs(calls)
        if not jobs:
            return []
        block = self._block(connection)
        connection = connection if block is None else block.connection
        if connection is not None:
            await self.aprepare()
            done = await self.store.connections.arun_on(connection, lambda: self._joining(jobs, block))
            return self._added(done, connection)
        try:
            done = await self.arun_operation(lambda: self.store.enqueue(jobs))
        except Interrupted:
            done = await self.arun_operation(lambda: self.store.enqueue(jobs, resent=True))
        if any(job.order_key or job.blockers for job in jobs):
            try:
                await self.aadmit_all()
            except Exception as error:
                log.debug("%s", _not_admitted(error))
        return self._added(done)

    def _admit(self) -> Operation[Admitted]:
        """Let in what waits for others or for its turn. Workers do this too, for what came in a borrowed connection."""
        return (yield from self.store.admit(ADMITTED_AT_ONCE))

    def admit_all(self) -> Admitted:
        """All that can be admitted now; `left` says how many could not be, and will have to be looked at again."""
        while (admitted := self.run_operation(self._admit)).jobs:
            pass
        return admitted

    async def aadmit_all(self) -> Admitted:
        while (admitted := await self.arun_operation(self._admit)).jobs:
            pass
        return admitted

    def call(self, type: str, input: Mapping[str, Any] | None = None, *, strict: bool = False, **options: Any) -> Call:
        """A call by name: of a task of this app or, unless it is `strict`, of one that only its worker knows."""
        chosen = NO_OPTIONS.updated(options)
        task = self.tasks.get(check_name("type", type))
        given = {} if input is None else input
        if task is not None:
            return task.call_object(given, chosen, options.keys())
        if strict:
            raise UnknownTask(_unknown(type, self.tasks))
        if not isinstance(given, Mapping):
            raise InvalidInput(f"{type}: the input is an object of arguments by name")
        encoded = codec.encode(dict(given), self.max_payload)
        return Call(type=type, input=encoded, options=chosen)

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


def _unknown(type: str, known: Iterable[str]) -> str:
    """What to say of a name that is no task's: perhaps another was meant."""
    near = difflib.get_close_matches(type, known, 1)
    return f"there is no task {type!r} in this app" + (f"; do you mean {near[0]!r}?" if near else "")


def _not_admitted(error: Exception) -> str:
    return f"arriving jobs could not be admitted now, which a worker will do: {error}"


def _ready_hints(done: Sequence[Enqueued]) -> list[Hint]:
    queues = {one.job.queue for one in done if one.created}
    return [Hint("ready", queue) for queue in sorted(queues)]

"""The pull interface: claim jobs for a loop of your own, without a worker."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, TypeVar, cast
from uuid import uuid4

from .attempt import Attempt
from .call import check_name, check_names
from .duration import Duration, to_seconds
from .errors import InvalidInput
from .identity import Identity
from .job import Job, is_last_attempt
from .lifecycle import PENDING
from .operation import Operation
from .outcome import give_back
from .policy import Policy
from .stores.store import Admitted, ClaimRequest, Lease, Store

if TYPE_CHECKING:
    from .app import Windlass

T = TypeVar("T")

LOCKED_SECONDS = 5.0  # that the next of one order key is waited for where somebody has it locked: a slow commit
ARRIVING_LOOKS = 2  # more of a claim that found nothing, where jobs could not be admitted: most locks are short
MOST_BYTES = 64 * 1024 * 1024  # of blockers' outputs that are held at once; one attempt may always have its own
READ_TOGETHER = 8  # attempts whose blockers' outputs are read at once, at most: how large they are shows afterwards
PAUSES = 0.01, 0.05  # seconds between looks: the first, and the longest


class Claiming:
    """Part of `Windlass`."""

    store: Store
    identity: Identity
    policies: dict[str, Policy]
    default_policy: Policy

    def run_operation(self, make: Callable[[], Operation[T]]) -> T:
        raise NotImplementedError

    async def arun_operation(self, make: Callable[[], Operation[T]]) -> T:
        raise NotImplementedError

    def admit_all(self) -> Admitted:
        raise NotImplementedError

    async def aadmit_all(self) -> Admitted:
        raise NotImplementedError

    def bind(self, job: Job, *, created: bool = True) -> Job:
        raise NotImplementedError

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
                    policies=self.policies,
                    default_policy=self.default_policy,
                    lease_seconds=None if lease is None else to_seconds(lease),
                    begun=False,
                )
            )
            app = cast("Windlass", self)
            attempts += [Attempt(app, self.bind(job), token) for job in jobs]
            if len(attempts) >= limit:
                break
        return attempts

    def _read_blockers(self, waited: Sequence[Attempt]) -> Operation[int]:
        """Give these attempts the outputs of their jobs' blockers, in order, until they are MOST_BYTES; to how many."""
        done, room, count = 0, MOST_BYTES, 1
        while done < len(waited) and room > 0:
            some = waited[done : done + count]
            found = yield from self.store.blockers([attempt.job.id for attempt in some])
            size = 0
            for attempt in some:
                attempt.had(found.get(attempt.job.id, ()))
                size += sum(len(blocker.output or "") for blocker in attempt.waited_for)
            done, room = done + len(some), room - size
            count = max(1, min(2 * count, READ_TOGETHER, room * len(some) // max(size, 1)))
        return done

    def _give_back(self, attempts: Sequence[Attempt]) -> Operation[object]:
        return self.store.settle([give_back(attempt.job, attempt.token) for attempt in attempts])

    # The claim is committed before the outputs are read: an operation that is repeated would claim twice. So where
    # reading fails, the jobs are given back, and the caller sees the error. Last attempts count from when the caller
    # gets them.

    def _begin(self, attempts: Sequence[Attempt]) -> Operation[object]:
        last = [attempt for attempt in attempts if is_last_attempt(attempt.job)]
        return self.store.begin([Lease(attempt.job.id, attempt.token, 0) for attempt in last])

    def _made_ready(self, attempts: list[Attempt]) -> list[Attempt]:
        """Those for whose blockers' outputs there is room; the other jobs go back to the queue."""
        waited = _waited(attempts)
        try:
            left = waited[self.run_operation(lambda: self._read_blockers(waited)) :] if waited else []
            if left:
                self.run_operation(lambda: self._give_back(left))
            ready = _without(attempts, left)
            if any(is_last_attempt(attempt.job) for attempt in ready):
                self.run_operation(lambda: self._begin(ready))
        except BaseException:
            with suppress(Exception):
                self.run_operation(lambda: self._give_back(attempts))
            raise
        return ready

    async def _amade_ready(self, attempts: list[Attempt]) -> list[Attempt]:
        waited = _waited(attempts)
        try:
            left = waited[await self.arun_operation(lambda: self._read_blockers(waited)) :] if waited else []
            if left:
                await self.arun_operation(lambda: self._give_back(left))
            ready = _without(attempts, left)
            if any(is_last_attempt(attempt.job) for attempt in ready):
                await self.arun_operation(lambda: self._begin(ready))
        except BaseException:
            with suppress(Exception):
                await asyncio.shield(self.arun_operation(lambda: self._give_back(attempts)))
            raise
        return ready

    def claim(
        self, limit: int = 10, *, queues: Sequence[str] | None = None, types: Sequence[str] | None = None,
        order_key: str | None = None, tenant: str | None = None, lease: Duration | None = 60, worker: str | None = None,
    ) -> list[Attempt]:  # fmt: skip
        """Take up to `limit` due jobs for a loop of one's own: of all `queues` and `types` or of those named, or the
        next of one `order_key` (of a `tenant`); for a `lease`, in the name of a `worker`. It may be fewer where what
        their blockers returned is more than 64 MB: the others stay in the queue."""
        claim = partial(self._claim, limit, queues, types, order_key, tenant, lease, worker)
        for number, pause in enumerate(_while_locked()):
            held_up = self.admit_all().left > 0 and number < ARRIVING_LOOKS
            attempts = self._made_ready(self.run_operation(claim))
            if attempts or (order_key is None and not held_up):
                break
            is_locked = partial(self._is_locked, order_key or "", tenant, queues, types)
            if not held_up and not self.run_operation(is_locked):
                break
            time.sleep(pause)
        return attempts

    async def aclaim(
        self, limit: int = 10, *, queues: Sequence[str] | None = None, types: Sequence[str] | None = None,
        order_key: str | None = None, tenant: str | None = None, lease: Duration | None = 60, worker: str | None = None,
    ) -> list[Attempt]:  # fmt: skip
        claim = partial(self._claim, limit, queues, types, order_key, tenant, lease, worker)
        for number, pause in enumerate(_while_locked()):
            held_up = (await self.aadmit_all()).left > 0 and number < ARRIVING_LOOKS
            attempts = await self._amade_ready(await self.arun_operation(claim))
            if attempts or (order_key is None and not held_up):
                break
            is_locked = partial(self._is_locked, order_key or "", tenant, queues, types)
            if not held_up and not await self.arun_operation(is_locked):
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


def _waited(attempts: list[Attempt]) -> list[Attempt]:
    return [attempt for attempt in attempts if attempt.job.blockers_left is not None]


def _without(attempts: list[Attempt], left: list[Attempt]) -> list[Attempt]:
    ids = {attempt.job.id for attempt in left}
    return [attempt for attempt in attempts if attempt.job.id not in ids]


def _while_locked() -> Iterator[float]:
    """Pauses between looks, one at least, for as long as it is worth while."""
    pause, longest = PAUSES
    deadline = time.monotonic() + LOCKED_SECONDS
    while True:
        yield pause
        pause = min(2 * pause, longest)
        if time.monotonic() >= deadline:
            return

"""The pull interface: claim jobs for your own loop, without a worker."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, cast
from uuid import uuid4

from .attempt import Attempt
from .call import check_names
from .duration import Delays, Duration, to_seconds
from .engine import Engine
from .enqueue import admit_all
from .errors import InvalidInput
from .job import is_last_attempt
from .lifecycle import PENDING
from .operation import Flow, Operation, Pause, transact
from .outcome import give_back
from .stores.store import ClaimRequest, Lease

if TYPE_CHECKING:
    from .app import Windlass

LOCKED_SECONDS = 5.0  # a claim of one order key waits so long for a locked row: a slow commit
ARRIVING_LOOKS = 2  # more looks of a claim that found nothing, where jobs could not be admitted: most locks are short
MOST_BYTES = 64 * 1024 * 1024  # of blockers' outputs that are held at once; one attempt may always have its own
BEGIN_SECONDS = 2.0  # a claim waits so long for the row of a last attempt that another transaction holds
READ_TOGETHER = 8  # attempts whose blockers' outputs are read at once, at most: how large they are shows afterwards
PAUSES = 0.01, 0.05  # seconds between looks: the first, and the longest


def claim(
    engine: Engine,
    limit: int = 10,
    *,
    queues: Sequence[str] | None = None,
    types: Sequence[str] | None = None,
    order_key: str | None = None,
    tenant: str | None = None,
    lease: Duration | None = 60,
    worker: str | None = None,
) -> Flow[list[Attempt]]:
    """Take up to `limit` due jobs for your own loop: of all `queues` and `types` or of those named, or the next of one
    `order_key` (of a `tenant`); for a `lease`, in the name of a `worker`. They may be fewer if the outputs of their
    blockers are more than 64 MB: the other jobs stay in the queue."""
    _check(limit, queues, types, order_key, tenant)
    lease_seconds = None if lease is None else to_seconds(lease)
    claim_once = partial(_claim_once, engine, limit, queues, types, order_key, tenant, lease_seconds, worker)
    is_locked = partial(_is_locked, engine, order_key or "", tenant, queues, types)
    for number, pause in enumerate(_pauses()):
        held_up = (yield from admit_all(engine)).left > 0 and number < ARRIVING_LOOKS
        claimed = yield from transact(claim_once)
        attempts = yield from _make_ready(engine, claimed)
        if attempts or (order_key is None and not held_up):
            break
        if not held_up and not (yield from transact(is_locked)):
            break
        yield Pause(pause)
    return attempts


def _check(
    limit: int, queues: Sequence[str] | None, types: Sequence[str] | None, order_key: str | None, tenant: str | None
) -> None:
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= 10_000:
        raise InvalidInput(f"limit is a number from 1 to 10,000, not {limit!r}")
    check_names("queues", queues)
    check_names("types", types)
    if tenant is not None and order_key is None:
        raise InvalidInput("tenant goes with order_key: it says whose key is meant; workers serve all tenants")


def _pauses() -> Iterator[float]:
    """Pauses between looks, at least one, until the time for locked rows is over."""
    deadline = time.monotonic() + LOCKED_SECONDS
    for seconds in Delays(*PAUSES):
        yield seconds
        if time.monotonic() >= deadline:
            return


def _claim_once(
    engine: Engine,
    limit: int,
    queues: Sequence[str] | None,
    types: Sequence[str] | None,
    order_key: str | None,
    tenant: str | None,
    lease_seconds: float | None,
    worker: str | None,
) -> Operation[list[Attempt]]:
    names = list(queues) if queues is not None else (yield from engine.store.live_queues())
    attempts: list[Attempt] = []
    for queue in names:
        token = uuid4()
        jobs = yield from engine.store.claim(
            ClaimRequest(
                queue=queue,
                limit=limit - len(attempts),
                token=token,
                worker=worker or engine.identity.name,
                types=types,
                order_key=order_key,
                tenant=tenant,
                policies=engine.policies,
                default_policy=engine.default_policy,
                lease_seconds=lease_seconds,
                begun=False,
            )
        )
        attempts += [Attempt(cast("Windlass", engine), engine.bind(job), token) for job in jobs]
        if len(attempts) >= limit:
            break
    return attempts


def _is_locked(
    engine: Engine, order_key: str, tenant: str | None, queues: Sequence[str] | None, types: Sequence[str] | None
) -> Operation[bool]:
    """Whether the next job of this key is due, and the claim passed over it because another transaction has locked its
    row for a moment. Without another look the caller might wait for a hint that no one sends."""
    head = yield from engine.store.head(tenant or "", order_key)
    if head is None or head.state != PENDING or (queues is not None and head.queue not in queues):
        return False
    if (types is not None and head.type not in types) or head.queue in (yield from engine.store.paused()):
        return False
    now = yield from engine.store.now()
    return head.run_at <= now and (head.expires_at is None or head.expires_at > now)


# The claim is committed before the outputs are read: a repeated operation would claim twice. So if reading fails, the
# jobs are given back, and the caller sees the error. A last attempt begins when the caller gets it.


def _make_ready(engine: Engine, attempts: list[Attempt]) -> Flow[list[Attempt]]:
    """The attempts with the outputs of their blockers. Those that find no room go back to the queue."""
    waited = [attempt for attempt in attempts if attempt.job.blockers_left is not None]
    try:
        left = waited[(yield from transact(lambda: _read_blockers(engine, waited))) :] if waited else []
        if left:
            yield from transact(lambda: _give_back(engine, left))
        given_back = {attempt.job.id for attempt in left}
        ready = [attempt for attempt in attempts if attempt.job.id not in given_back]
        not_begun = yield from _begin([attempt for attempt in ready if is_last_attempt(attempt.job)], engine)
        ready = [attempt for attempt in ready if attempt not in not_begun]
    except BaseException:
        with suppress(Exception):
            yield from transact(lambda: _give_back(engine, attempts), shielded=True)
        raise
    return ready


def _read_blockers(engine: Engine, waited: Sequence[Attempt]) -> Operation[int]:
    """Give these attempts the outputs of their jobs' blockers, in order, until they are MOST_BYTES; to how many."""
    done, room, count = 0, MOST_BYTES, 1
    while done < len(waited) and room > 0:
        some = waited[done : done + count]
        found = yield from engine.store.blockers([attempt.job.id for attempt in some])
        size = 0
        for attempt in some:
            attempt.set_blockers(found.get(attempt.job.id, ()))
            size += sum(len(blocker.output or "") for blocker in attempt.waited_for)
        done, room = done + len(some), room - size
        count = max(1, min(2 * count, READ_TOGETHER, room * len(some) // max(size, 1)))
    return done


def _give_back(engine: Engine, attempts: Sequence[Attempt]) -> Operation[object]:
    return engine.store.settle([give_back(attempt.job, attempt.token) for attempt in attempts])


def _begin(last: Sequence[Attempt], engine: Engine) -> Flow[set[Attempt]]:
    """Mark last attempts as begun. Return those that are not: another claimer has the job, or another transaction holds
    its row for long. Their leases end, and no attempt is spent."""
    left, refused = list(last), set[Attempt]()
    delays, deadline = Delays(*PAUSES), time.monotonic() + BEGIN_SECONDS
    while left:
        leases = [Lease(attempt.job.id, attempt.token, 0) for attempt in left]
        refusals = yield from transact(lambda: engine.store.begin(leases))  # noqa: B023
        reasons = {refusal.id: refusal.reason for refusal in refusals}
        refused |= {attempt for attempt in left if reasons.get(attempt.job.id, "locked") != "locked"}
        left = [attempt for attempt in left if reasons.get(attempt.job.id) == "locked"]
        if left and time.monotonic() > deadline:
            break
        if left:
            yield Pause(next(delays))
    return refused.union(left)

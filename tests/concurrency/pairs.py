"""Pairs of operations that can race on a job that is there.

Each is a generator: it prepares a scene, yields what the two actors do, gets the performance back, and checks what
must hold whatever their order was.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from datetime import timedelta
from typing import Any, TypeAlias
from uuid import uuid4

from windlass.clock import Clock
from windlass.operation import Operation
from windlass.stores.mongodb import MongoStore
from windlass.stores.postgres.store import PostgresStore
from windlass.stores.sqlite.store import SqliteStore
from windlass.stores.store import Lease, Store

from .interleaving import Performance
from .scene import QUEUE, Scene, settlement

Make: TypeAlias = Callable[[], Operation[Any]]
Pair: TypeAlias = Generator[tuple[Make, Make], Performance, None]

PAIRS: dict[str, Callable[[Scene], Pair]] = {}


def pair(name: str) -> Callable[[Callable[..., Pair]], Callable[..., Pair]]:
    def register(function: Callable[..., Pair]) -> Callable[..., Pair]:
        PAIRS[name] = function
        return function

    return register


def succeeded(performance: Performance) -> tuple[Any, Any]:
    """The answers, where neither may fail."""
    for answer in performance.answers:
        if isinstance(answer, BaseException):
            raise answer
    return performance.answers


# Claims


@pair("claim/claim")
def claim_claim(scene: Scene) -> Pair:
    ids = {scene.waiting() for _ in range(3)}
    tokens = uuid4(), uuid4()
    performance = yield (
        lambda: scene.claim(limit=2, token=tokens[0]),
        lambda: scene.claim(limit=2, token=tokens[1], worker="two"),
    )
    taken = [{job.id for job in answer} for answer in succeeded(performance)]
    assert not taken[0] & taken[1], "a job was claimed twice"
    for mine, token in zip(taken, tokens, strict=True):
        assert {job.id for job in scene.do("adopt", token)} == mine
    assert taken[0] or taken[1]
    rest = {job.id for job in scene.do("claim", scene.request())}
    assert rest == ids - taken[0] - taken[1], "a job was lost"


@pair("cancel/claim")
def cancel_claim(scene: Scene) -> Pair:
    id = scene.waiting()
    performance = yield lambda: scene.store.cancel([id]), lambda: scene.claim()
    (change,), claimed = succeeded(performance)
    job = scene.job(id)
    assert change.done
    assert change.state == job.state == ("running" if claimed else "cancelled")
    assert job.cancel_requested == bool(claimed)


@pair("pause/claim")
def pause_claim(scene: Scene) -> Pair:
    id = scene.waiting()
    performance = yield lambda: scene.store.pause(QUEUE), lambda: scene.claim()
    _, claimed = succeeded(performance)
    if performance.schedule.rindex("A") < performance.schedule.index("B"):
        assert not claimed, "a claim that began after the pause has taken a job"
    assert scene.state(id) == ("running" if claimed else "pending")
    assert scene.do("paused") == [QUEUE]
    assert not scene.do("claim", scene.request())


@pair("delete/claim")
def delete_claim(scene: Scene) -> Pair:
    id = scene.waiting()
    performance = yield lambda: scene.store.delete([id]), lambda: scene.claim()
    (change,), claimed = succeeded(performance)
    assert change.done != bool(claimed)
    assert [job.state for job in scene.all()] == (["running"] if claimed else [])
    if claimed:
        assert change.state == "running"


@pair("run now/claim")
def run_now_claim(scene: Scene) -> Pair:
    id = scene.waiting(delay_seconds=600)
    performance = yield lambda: scene.store.run_now([id]), lambda: scene.claim()
    (change,), claimed = succeeded(performance)
    assert change.done
    assert scene.state(id) == ("running" if claimed else "pending")


# Expiry: to one of the two, an hour has passed


def an_hour_later(scene: Scene) -> Store:
    """A store of the same tables whose clock is an hour ahead. It only makes operations, and never connects."""
    clock = Clock()
    clock.move(timedelta(hours=1))
    match scene.store:
        case PostgresStore(schema=schema):
            return PostgresStore("postgresql://localhost/unused", schema=schema, clock=clock)
        case SqliteStore():
            return SqliteStore(":memory:", clock=clock)
    return MongoStore("mongodb://localhost/unused", clock=clock)


@pair("expire/claim")
def expire_claim(scene: Scene) -> Pair:
    id = scene.waiting(expires_seconds=60)
    later = an_hour_later(scene)
    performance = yield lambda: later.expire(10), lambda: scene.claim()
    expired, claimed = succeeded(performance)
    assert len(expired) + len(claimed) == 1, "both or neither have the job"
    assert scene.state(id) == ("running" if claimed else "cancelled")


@pair("expire/expire")
def expire_expire(scene: Scene) -> Pair:
    ids = {scene.waiting(expires_seconds=60) for _ in range(2)}
    later = an_hour_later(scene)
    performance = yield lambda: later.expire(10), lambda: later.expire(10)
    first, second = succeeded(performance)
    ended = [one.id for one in [*first, *second]]
    assert len(ended) == len(set(ended)), "expired twice"
    assert set(ended) == ids
    assert {job.state for job in scene.all()} == {"cancelled"}


@pair("expire/cancel")
def expire_cancel(scene: Scene) -> Pair:
    id = scene.waiting(expires_seconds=60)
    later = an_hour_later(scene)
    performance = yield lambda: later.expire(10), lambda: scene.store.cancel([id])
    expired, (change,) = succeeded(performance)
    assert len(expired) + change.done == 1
    job = scene.job(id)
    assert (job.state, job.error is not None) == ("cancelled", bool(expired))


# Rescue


@pair("rescue/rescue")
def rescue_rescue(scene: Scene) -> Pair:
    ids = {scene.abandoned()[0] for _ in range(2)}
    performance = yield lambda: scene.store.rescue(10), lambda: scene.store.rescue(10)
    first, second = succeeded(performance)
    rescued = [one.id for one in [*first, *second]]
    assert len(rescued) == len(set(rescued)), "rescued twice"
    rescued += [one.id for one in scene.do("rescue", 10)]
    assert set(rescued) == ids
    assert {job.state for job in scene.all()} == {"pending"}


def rescue_settle(scene: Scene, state: Any, max_attempts: int) -> Pair:
    id, token = scene.abandoned(max_attempts=max_attempts)
    performance = yield lambda: scene.store.rescue(10), lambda: scene.store.settle([settlement(id, token, state)])
    rescued, refused = succeeded(performance)
    job = scene.job(id)
    if rescued:
        assert [refusal.id for refusal in refused] == [id], "both the rescuer and the worker were told that they won"
        assert job.state == ("failed" if max_attempts == 1 else "pending")
        assert job.error is not None
        assert job.error.type == "LeaseExpired"
        again = scene.do("settle", [settlement(id, token, state)])
        assert [refusal.id for refusal in again] == [id], "a late settlement, sent again, was accepted"
    else:
        assert not refused, "neither the rescuer nor the worker won"
        assert job.state == state
        assert job.error is None
        assert not scene.do("settle", [settlement(id, token, state)]), "sent again, it was refused"


for outcome in ("completed", "pending", "failed"):
    for attempts in (1, 3):
        name = f"rescue/settle({outcome}), {attempts} attempts"
        pair(name)(lambda scene, state=outcome, most=attempts: rescue_settle(scene, state, most))


@pair("rescue/renew")
def rescue_renew(scene: Scene) -> Pair:
    id, token = scene.abandoned()
    performance = yield lambda: scene.store.rescue(10), lambda: scene.renew(id, token)
    rescued, (renewal,) = succeeded(performance)
    if renewal.locked:  # by the rescuer; whoever asks again learns what came of it
        (renewal,) = scene.do("renew", [Lease(id, token, 60.0)])
    assert bool(rescued) == (renewal.expires_at is None), "both or neither hold the job"
    job = scene.job(id)
    assert job.state == ("pending" if rescued else "running")
    if not rescued:
        assert job.lease_expires_at == renewal.expires_at
        assert not scene.do("rescue", 10)


# Cancelling what runs


@pair("cancel/settle(completed)")
def cancel_complete(scene: Scene) -> Pair:
    id, token = scene.running()
    performance = yield (
        lambda: scene.store.cancel([id]),
        lambda: scene.store.settle([settlement(id, token, "completed", output="1")]),
    )
    (change,), refused = succeeded(performance)
    assert not refused
    assert scene.state(id) == "completed"
    assert (change.done, change.state) in [(True, "running"), (False, "completed")]


@pair("cancel/settle(pending)")
def cancel_send_back(scene: Scene) -> Pair:
    id, token = scene.running()
    back = settlement(id, token, "pending", delay_seconds=0.0)
    performance = yield lambda: scene.store.cancel([id]), lambda: scene.store.settle([back])
    (change,), refused = succeeded(performance)
    assert not refused
    assert change.done
    assert scene.state(id) == "cancelled", "a job that someone cancelled came back"
    assert not scene.do("claim", scene.request())


@pair("cancel/rescue")
def cancel_rescue(scene: Scene) -> Pair:
    id, _ = scene.abandoned()
    performance = yield lambda: scene.store.cancel([id]), lambda: scene.store.rescue(10)
    (change,), _ = succeeded(performance)
    assert change.done
    scene.do("rescue", 10)
    assert scene.state(id) == "cancelled"


@pair("cancel/cancel")
def cancel_cancel(scene: Scene) -> Pair:
    id = scene.waiting()
    performance = yield lambda: scene.store.cancel([id]), lambda: scene.store.cancel([id])
    changes = [change for answer in succeeded(performance) for change in answer]
    assert sorted(change.done for change in changes) == [False, True]
    assert {change.state for change in changes} == {"cancelled"}


# Settling


def settle_settle(scene: Scene, one: Any, other: Any) -> Pair:
    id, token = scene.running()
    performance = yield (
        lambda: scene.store.settle([settlement(id, token, one, output="1" if one == "completed" else None)]),
        lambda: scene.store.settle([settlement(id, token, other, output="1" if other == "completed" else None)]),
    )
    refused = [bool(answer) for answer in succeeded(performance)]
    job = scene.job(id)
    assert job.state in (one, other)
    assert not all(refused)
    if one == other:
        assert not any(refused), "the same settlement, sent again, was refused"
    for state, lost in ((one, refused[0]), (other, refused[1])):
        if state == "completed":
            assert lost == (job.state != "completed"), "who completed the job was told something else"


for one, other in (
    ("completed", "completed"),
    ("completed", "failed"),
    ("completed", "pending"),
    ("pending", "pending"),
    ("failed", "pending"),
):
    pair(f"settle({one})/settle({other})")(lambda scene, a=one, b=other: settle_settle(scene, a, b))


@pair("renew/settle(completed)")
def renew_settle(scene: Scene) -> Pair:
    id, token = scene.running()
    done = settlement(id, token, "completed")
    performance = yield lambda: scene.renew(id, token), lambda: scene.store.settle([done])
    (renewal,), refused = succeeded(performance)
    assert not refused
    assert scene.state(id) == "completed"
    assert renewal.expires_at is not None or renewal.reason == "already finished"


@pair("settle(failed)/retry")
def fail_retry(scene: Scene) -> Pair:
    id, token = scene.running()
    performance = yield (
        lambda: scene.store.settle([settlement(id, token, "failed")]),
        lambda: scene.store.retry([id]),
    )
    refused, (change,) = succeeded(performance)
    assert not refused
    job = scene.job(id)
    assert change.state == ("pending" if change.done else "running")
    assert (job.state, job.attempt) == (("pending", 0) if change.done else ("failed", 1))


@pair("retry/retry")
def retry_retry(scene: Scene) -> Pair:
    id = scene.failed()
    performance = yield lambda: scene.store.retry([id]), lambda: scene.store.retry([id])
    changes = [change for answer in succeeded(performance) for change in answer]
    assert sorted(change.done for change in changes) == [False, True]
    assert scene.state(id) == "pending"


@pair("retry/delete")
def retry_delete(scene: Scene) -> Pair:
    id = scene.failed()
    performance = yield lambda: scene.store.retry([id]), lambda: scene.store.delete([id])
    (brought_back,), (deleted,) = succeeded(performance)
    assert deleted.done
    assert brought_back.done or brought_back.state is None
    assert scene.all() == []


# Pruning


def prune_retry(scene: Scene, keep: timedelta) -> Pair:
    id = scene.failed(keep_seconds=int(keep.total_seconds()))
    scene.store.clock.move(keep + timedelta(days=3))
    performance = yield lambda: scene.store.prune(10), lambda: scene.store.retry([id])
    _, (change,) = succeeded(performance)
    scene.do("prune", 10)
    if change.done:
        assert scene.state(id) == "pending"
    else:
        assert change.state is None
        assert scene.all() == []


pair("prune/retry, kept for an hour")(lambda scene: prune_retry(scene, timedelta(hours=1)))
pair("prune/retry, kept for days")(lambda scene: prune_retry(scene, timedelta(days=2)))

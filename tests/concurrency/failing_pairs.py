"""Pairs of operations that race where a blocker fails: what waits for it is cancelled, or runs, and is not stranded."""

from __future__ import annotations

from functools import partial
from uuid import UUID, uuid4

from .dependent_pairs import OTHER, admit, after, completes, take
from .pairs import Pair, pair, succeeded
from .scene import Scene, settlement

THEN = {"cancel": "cancelled", "run": "pending"}


def check(scene: Scene, id: UUID, then: str) -> None:
    admit(scene)
    assert scene.state(id) == THEN[then], "stranded"
    assert take(scene, OTHER) == (id if then == "run" else None)
    scene.check_consistency()


def fail_enqueue_after(then: str, scene: Scene) -> Pair:
    id, token = scene.running()
    job = after(id, if_failed=then)
    performance = yield (
        lambda: scene.store.settle([settlement(id, token, "failed")]),
        lambda: scene.store.enqueue([job]),
    )
    refused, _ = succeeded(performance)
    assert refused == []
    check(scene, job.id, then)


def fail_admit(then: str, scene: Scene) -> Pair:
    id, token = scene.running()
    job = after(id, if_failed=then)
    scene.do("enqueue", [job])
    performance = yield (
        lambda: scene.store.settle([settlement(id, token, "failed")]),
        lambda: scene.store.admit(10),
    )
    refused, _ = succeeded(performance)
    assert refused == []
    check(scene, job.id, then)


def linked_fail_admit(then: str, scene: Scene) -> Pair:
    """Another waits for the same blocker already, so that its end looks at edges."""
    id, token = scene.running()
    first, job = after(id, if_failed="cancel"), after(id, if_failed=then)
    scene.do("enqueue", [first])
    admit(scene)
    scene.do("enqueue", [job])
    performance = yield (
        lambda: scene.store.settle([settlement(id, token, "failed")]),
        lambda: scene.store.admit(10),
    )
    refused, _ = succeeded(performance)
    assert refused == []
    check(scene, job.id, then)
    assert scene.state(first.id) == "cancelled"


def fail_fail(then: str, scene: Scene) -> Pair:
    (one, one_token), (two, two_token) = scene.running(), scene.running()
    job = after(one, two, if_failed=then)
    scene.do("enqueue", [job])
    admit(scene)
    performance = yield (
        lambda: scene.store.settle([settlement(one, one_token, "failed")]),
        lambda: scene.store.settle([settlement(two, two_token, "failed")]),
    )
    assert succeeded(performance) == ([], [])
    check(scene, job.id, then)


def fail_complete(then: str, scene: Scene) -> Pair:
    (one, one_token), (two, two_token) = scene.running(), scene.running()
    job = after(one, two, if_failed=then)
    scene.do("enqueue", [job])
    admit(scene)
    performance = yield (
        lambda: scene.store.settle([settlement(one, one_token, "failed")]),
        lambda: scene.store.settle([completes(two, two_token)]),
    )
    assert succeeded(performance) == ([], [])
    check(scene, job.id, then)


def fail_cancel_of_the_dependent(then: str, scene: Scene) -> Pair:
    id, token = scene.running()
    job = after(id, if_failed=then)
    scene.do("enqueue", [job])
    admit(scene)
    performance = yield (
        lambda: scene.store.settle([settlement(id, token, "failed")]),
        lambda: scene.store.cancel([job.id]),
    )
    refused, _ = succeeded(performance)
    assert refused == []
    assert scene.state(job.id) == "cancelled"
    scene.check_consistency()


def retry_admit(then: str, scene: Scene) -> Pair:
    """A failed blocker is brought back while one that waits for it is admitted: it waits, or it has gone its way."""
    blocker = scene.failed()
    job = after(blocker, if_failed=then)
    scene.do("enqueue", [job])
    performance = yield lambda: scene.store.retry([blocker]), lambda: scene.store.admit(10)
    (change,), _ = succeeded(performance)
    assert change.done
    admit(scene)
    if scene.state(job.id) == "blocked":
        token = uuid4()
        scene.do("claim", scene.request(token=token))
        assert scene.do("settle", [completes(blocker, token)]) == []
        assert scene.state(job.id) == "pending"
    else:
        assert scene.state(job.id) == THEN[then]
    scene.do("cancel", [job.id])


for then in THEN:
    for name, play in {
        "fail/enqueue after": fail_enqueue_after,
        "fail/admit": fail_admit,
        "fail of what is waited for/admit": linked_fail_admit,
        "fail/fail of two blockers": fail_fail,
        "fail/complete of two blockers": fail_complete,
        "fail/cancel of the dependent": fail_cancel_of_the_dependent,
        "retry of a failed blocker/admit": retry_admit,
    }.items():
        pair(f"{name}, if_failed={then}")(partial(play, then))

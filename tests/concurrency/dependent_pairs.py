"""Pairs of operations that race where one job hangs on another: nobody is stranded, nobody goes ahead of his turn."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

from windlass.errors import InvalidInput, JobNotFound
from windlass.job import NewJob
from windlass.outcome import Settlement

from .pairs import Pair, pair, succeeded
from .scene import Scene, new_job, settlement

OTHER = "other line"


def admit(scene: Scene) -> None:
    while scene.do("admit", 100).jobs:
        pass


def after(*blockers: UUID, **fields: Any) -> NewJob:
    return new_job(blockers=blockers, state="blocked", **{"queue": OTHER} | fields)


def completes(id: UUID, token: UUID, **more: Any) -> Settlement:
    return settlement(id, token, "completed", output='"out"', **more)


def outputs(scene: Scene, id: UUID) -> list[str | None]:
    return [blocker.output for blocker in scene.do("blockers", [id])[id]]


def take(scene: Scene, queue: str) -> UUID | None:
    """Claim and complete whatever can run in a queue: at most one."""
    token = uuid4()
    jobs = scene.do("claim", scene.request(queue=queue, token=token))
    assert len(jobs) <= 1, "two of one order key at once"
    for job in jobs:
        assert scene.do("settle", [completes(job.id, token)]) == []
        admit(scene)
    return jobs[0].id if jobs else None


def check_freed(scene: Scene, id: UUID) -> None:
    admit(scene)
    assert scene.state(id) == "pending", "stranded"
    assert take(scene, OTHER) == id


# Blockers


@pair("complete/enqueue after")
def complete_enqueue_after(scene: Scene) -> Pair:
    id, token = scene.running()
    job = after(id)
    performance = yield lambda: scene.store.settle([completes(id, token)]), lambda: scene.store.enqueue([job])
    refused, _ = succeeded(performance)
    assert refused == []
    check_freed(scene, job.id)
    assert outputs(scene, job.id) == ['"out"']


@pair("complete/admit")
def complete_admit(scene: Scene) -> Pair:
    id, token = scene.running()
    job = after(id)
    scene.do("enqueue", [job])
    performance = yield lambda: scene.store.settle([completes(id, token)]), lambda: scene.store.admit(10)
    refused, _ = succeeded(performance)
    assert refused == []
    check_freed(scene, job.id)
    assert outputs(scene, job.id) == ['"out"']


@pair("admit/admit")
def admit_admit(scene: Scene) -> Pair:
    id, token = scene.running()
    jobs = [after(id), after(id, queue="third line")]
    scene.do("enqueue", jobs)
    performance = yield lambda: scene.store.admit(10), lambda: scene.store.admit(10)
    succeeded(performance)
    assert {scene.state(job.id) for job in jobs} == {"blocked"}
    scene.do("settle", [completes(id, token)])
    for job in jobs:
        assert scene.state(job.id) == "pending"
        assert take(scene, job.queue) == job.id


@pair("complete/complete of two blockers")
def complete_complete(scene: Scene) -> Pair:
    (one, one_token), (two, two_token) = scene.running(), scene.running()
    job = after(one, two)
    scene.do("enqueue", [job])
    admit(scene)
    performance = yield (
        lambda: scene.store.settle([completes(one, one_token)]),
        lambda: scene.store.settle([completes(two, two_token)]),
    )
    assert succeeded(performance) == ([], [])
    check_freed(scene, job.id)


@pair("continue/admit")
def continue_admit(scene: Scene) -> Pair:
    id, token = scene.running()
    job = after(id)
    scene.do("enqueue", [job])
    following = new_job(chain_id=id, chain_index=1, queue="chain")
    performance = yield (
        lambda: scene.store.settle([completes(id, token, continues=following)]),
        lambda: scene.store.admit(10),
    )
    refused, _ = succeeded(performance)
    assert refused == []
    admit(scene)
    assert scene.state(job.id) == "blocked", "freed before the chain had ended"
    assert take(scene, "chain") == following.id
    check_freed(scene, job.id)


@pair("hand over/admit")
def hand_over_admit(scene: Scene) -> Pair:
    id, token = scene.running()
    job, next_token = after(id), uuid4()
    scene.do("enqueue", [job])
    following = new_job(chain_id=id, chain_index=1, queue="chain", lease_seconds=60.0)
    performance = yield (
        lambda: scene.store.hand_over(completes(id, token, continues=following), next_token, "me"),
        lambda: scene.store.admit(10),
    )
    done, _ = succeeded(performance)
    assert done.refusals == []
    admit(scene)
    assert scene.state(job.id) == "blocked", "freed before the chain had ended"
    assert done.job is not None
    assert scene.do("settle", [completes(following.id, next_token)]) == []
    check_freed(scene, job.id)


@pair("hand over/pause")
def hand_over_pause(scene: Scene) -> Pair:
    id, token = scene.running()
    following = new_job(chain_id=id, chain_index=1, lease_seconds=60.0)
    performance = yield (
        lambda: scene.store.hand_over(completes(id, token, continues=following), uuid4(), "me"),
        lambda: scene.store.pause(following.queue),
    )
    done, _ = succeeded(performance)
    assert done.refusals == []
    assert scene.state(following.id) == ("pending" if done.job is None else "running")


@pair("continue after each other")
def continue_crosswise(scene: Scene) -> Pair:
    (one, one_token), (other, other_token) = scene.running(), scene.running()
    following = [after(other, chain_id=one, chain_index=1), after(one, chain_id=other, chain_index=1)]
    performance = yield (
        lambda: scene.store.settle([completes(one, one_token, continues=following[0])]),
        lambda: scene.store.settle([completes(other, other_token, continues=following[1])]),
    )
    refused = [isinstance(answer, InvalidInput) for answer in performance.answers]
    assert refused.count(True) == 1, "they wait for each other"
    (id, token), waiting = ((one, one_token), following[1]) if refused[0] else ((other, other_token), following[0])
    assert scene.state(id) == "running"
    assert scene.do("settle", [completes(id, token)]) == []
    check_freed(scene, waiting.id)


@pair("retry of a blocker/admit")
def retry_admit(scene: Scene) -> Pair:
    blocker = scene.failed()
    job = after(blocker)
    scene.do("enqueue", [job])
    performance = yield lambda: scene.store.retry([blocker]), lambda: scene.store.admit(10)
    (change,), _ = succeeded(performance)
    assert change.done
    admit(scene)
    assert scene.state(job.id) == "blocked"
    token = uuid4()
    scene.do("claim", scene.request(token=token))
    assert scene.do("settle", [completes(blocker, token)]) == []
    check_freed(scene, job.id)


@pair("retry/complete of a blocker")
def retry_complete(scene: Scene) -> Pair:
    """One of two blockers is brought back while the other completes."""
    failed, (id, token) = scene.failed(), scene.running()
    job = after(failed, id)
    scene.do("enqueue", [job])
    admit(scene)
    performance = yield (
        lambda: scene.store.retry([failed]),
        lambda: scene.store.settle([completes(id, token)]),
    )
    (change,), refused = succeeded(performance)
    assert change.done
    assert refused == []
    assert scene.state(job.id) == "blocked"
    token = uuid4()
    scene.do("claim", scene.request(token=token))
    assert scene.do("settle", [completes(failed, token)]) == []
    check_freed(scene, job.id)


@pair("delete/enqueue after")
def delete_enqueue_after(scene: Scene) -> Pair:
    blocker = scene.waiting()
    job = after(blocker)
    performance = yield lambda: scene.store.delete([blocker]), lambda: scene.store.enqueue([job])
    deleted, added = performance.answers
    assert not isinstance(deleted, BaseException)
    admit(scene)
    if isinstance(added, BaseException):
        assert isinstance(added, JobNotFound)
        assert deleted[0].done
        assert scene.all() == []
    elif deleted[0].done:
        assert scene.state(job.id) == "blocked", "what waits for a job that is gone shows it"
    else:
        token = uuid4()
        scene.do("claim", scene.request(token=token))
        scene.do("settle", [completes(blocker, token)])
        check_freed(scene, job.id)


@pair("delete/admit")
def delete_admit(scene: Scene) -> Pair:
    blocker = scene.waiting()
    job = after(blocker)
    scene.do("enqueue", [job])
    performance = yield lambda: scene.store.delete([blocker]), lambda: scene.store.admit(10)
    (change,), _ = succeeded(performance)
    assert not change.done, "deleted while another waits for it"
    admit(scene)
    token = uuid4()
    scene.do("claim", scene.request(token=token))
    scene.do("settle", [completes(blocker, token)])
    check_freed(scene, job.id)


# Order keys


def ordered(**fields: Any) -> NewJob:
    return new_job(order_key="key", **{"queue": OTHER} | fields)


def head(scene: Scene) -> tuple[UUID, UUID]:
    """A running job at the head of its lane, and its token."""
    job, token = ordered(), uuid4()
    scene.do("enqueue", [job])
    admit(scene)
    (claimed,) = scene.do("claim", scene.request(queue=OTHER, token=token))
    assert claimed.id == job.id
    return job.id, token


def check_order(scene: Scene, *ids: UUID) -> None:
    admit(scene)
    for id in ids:
        assert take(scene, OTHER) == id, "stranded, or not in order"
    assert take(scene, OTHER) is None


@pair("settle/enqueue with an order key")
def settle_enqueue_ordered(scene: Scene) -> Pair:
    id, token = head(scene)
    job = ordered()
    performance = yield lambda: scene.store.settle([completes(id, token)]), lambda: scene.store.enqueue([job])
    refused, _ = succeeded(performance)
    assert refused == []
    check_order(scene, job.id)


@pair("settle/admit with an order key")
def settle_admit_ordered(scene: Scene) -> Pair:
    id, token = head(scene)
    jobs = [ordered(), ordered()]
    scene.do("enqueue", jobs)
    performance = yield lambda: scene.store.settle([completes(id, token)]), lambda: scene.store.admit(10)
    refused, _ = succeeded(performance)
    assert refused == []
    check_order(scene, *(job.id for job in jobs))


@pair("admit/admit with an order key")
def admit_admit_ordered(scene: Scene) -> Pair:
    jobs = [ordered(), ordered(), ordered()]
    scene.do("enqueue", jobs)
    performance = yield lambda: scene.store.admit(10), lambda: scene.store.admit(10)
    succeeded(performance)
    check_order(scene, *(job.id for job in jobs))


@pair("cancel/settle with an order key")
def cancel_settle_ordered(scene: Scene) -> Pair:
    id, token = head(scene)
    jobs = [ordered(), ordered()]
    scene.do("enqueue", jobs)
    admit(scene)
    performance = yield (
        lambda: scene.store.cancel([jobs[0].id]),
        lambda: scene.store.settle([completes(id, token)]),
    )
    (change,), refused = succeeded(performance)
    assert change.done
    assert refused == []
    check_order(scene, jobs[1].id)


@pair("delete/settle with an order key")
def delete_settle_ordered(scene: Scene) -> Pair:
    id, token = head(scene)
    jobs = [ordered(), ordered()]
    scene.do("enqueue", jobs)
    admit(scene)
    performance = yield (
        lambda: scene.store.delete([jobs[0].id]),
        lambda: scene.store.settle([completes(id, token)]),
    )
    (change,), refused = succeeded(performance)
    assert change.done
    assert refused == []
    check_order(scene, jobs[1].id)

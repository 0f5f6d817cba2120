"""Pairs of operations that race for an id or for a unique key."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from windlass.errors import Conflict

from .pairs import Pair, an_hour_later, pair, succeeded
from .scene import Scene, new_job, settlement

KEY = "the-only-one"


def unique(until: str, on_conflict: str = "keep", **fields: Any) -> Any:
    window = 3600.0 if until == "window" else None
    return new_job(unique_key=KEY, unique_until=until, on_conflict=on_conflict, window_seconds=window, **fields)


# Two who enqueue


def enqueue_enqueue(scene: Scene, until: str, on_conflict: str) -> Pair:
    first, second = (unique(until, on_conflict, input=f'{{"from":"{name}"}}') for name in "AB")
    performance = yield lambda: scene.store.enqueue([first]), lambda: scene.store.enqueue([second])
    (job,) = scene.all()
    winner, loser = (first, second) if job.id == first.id else (second, first)
    answers = dict(zip((first.id, second.id), performance.answers, strict=True))
    if on_conflict == "raise":
        assert isinstance(answers.pop(loser.id), Conflict)
    for id, answer in answers.items():
        assert not isinstance(answer, BaseException), answer
        assert [(one.job.id, one.created) for one in answer] == [(winner.id, id == winner.id)]
    assert job.input_json == (loser if on_conflict == "replace" else winner).input


for kind, reaction in (
    ("claimed", "keep"),
    ("claimed", "replace"),
    ("claimed", "raise"),
    ("finished", "keep"),
    ("finished", "raise"),
    ("forever", "keep"),
    ("forever", "raise"),
    ("window", "keep"),
    ("window", "raise"),
):
    pair(f"enqueue/enqueue, unique until {kind}, {reaction}")(
        lambda scene, until=kind, on_conflict=reaction: enqueue_enqueue(scene, until, on_conflict)
    )


@pair("enqueue/enqueue, two keys crosswise")
def enqueue_crosswise(scene: Scene) -> Pair:
    batches = [
        [new_job(unique_key=key, unique_until="finished") for key in keys] for keys in (("one", "two"), ("two", "one"))
    ]
    performance = yield lambda: scene.store.enqueue(batches[0]), lambda: scene.store.enqueue(batches[1])
    answers = succeeded(performance)
    assert {job.unique_key for job in scene.all()} == {"one", "two"}
    assert len(scene.all()) == 2
    assert sum(one.created for answer in answers for one in answer) == 2
    assert {one.job.id for answer in answers for one in answer} == {job.id for job in scene.all()}


@pair("enqueue/enqueue, one id")
def enqueue_same_id(scene: Scene) -> Pair:
    new = new_job(id_given=True)
    performance = yield lambda: scene.store.enqueue([new]), lambda: scene.store.enqueue([new])
    answers = [answer[0] for answer in succeeded(performance)]
    assert [job.id for job in scene.all()] == [new.id]
    assert [answer.job.id for answer in answers] == [new.id, new.id]
    assert sorted(answer.created for answer in answers) == [False, True]


# One who enqueues while the job that is in his place goes on


def resend(scene: Scene, given: bool, key: str | None, state: Any) -> Pair:
    new = new_job(id_given=given, unique_key=key, unique_until=key and "finished")
    scene.do("enqueue", [new])
    (job,) = scene.do("claim", request := scene.request())
    end = settlement(job.id, request.token, state)
    performance = yield lambda: scene.store.enqueue([new], resent=not given), lambda: scene.store.settle([end])
    (answer,), refused = succeeded(performance)
    assert not refused
    assert (answer.job.id, answer.created) == (new.id, False)
    assert [(job.id, job.state) for job in scene.all()] == [(new.id, state)]
    if state == "completed":
        assert not scene.do("claim", scene.request()), "a job that has completed can be run again"


pair("enqueue again/settle(completed)")(lambda scene: resend(scene, True, None, "completed"))
pair("enqueue again/settle(failed)")(lambda scene: resend(scene, True, None, "failed"))
pair("enqueue again/settle(pending)")(lambda scene: resend(scene, True, None, "pending"))
pair("enqueue resent/settle(completed)")(lambda scene: resend(scene, False, None, "completed"))
pair("enqueue again with its key/settle(completed)")(lambda scene: resend(scene, True, "its-own", "completed"))


@pair("enqueue again/retry")
def enqueue_again_retry(scene: Scene) -> Pair:
    new = new_job(id_given=True)
    scene.do("enqueue", [new])
    (job,) = scene.do("claim", request := scene.request())
    scene.do("settle", [settlement(job.id, request.token, "failed")])
    performance = yield lambda: scene.store.enqueue([new]), lambda: scene.store.retry([new.id])
    (answer,), (change,) = succeeded(performance)
    assert (answer.job.id, answer.created) == (new.id, False)
    assert change.done
    assert [(job.id, job.state) for job in scene.all()] == [(new.id, "pending")]


@pair("enqueue/settle of the key's holder")
def enqueue_settle_holder(scene: Scene) -> Pair:
    id, token = scene.running(unique_key=KEY, unique_until="finished")
    new = unique("finished")
    performance = yield (
        lambda: scene.store.enqueue([new]),
        lambda: scene.store.settle([settlement(id, token, "completed")]),
    )
    (answer,), refused = succeeded(performance)
    assert not refused
    assert answer.job.id == (new.id if answer.created else id)
    there = {job.id: job.state for job in scene.all()}
    assert there == {id: "completed"} | ({new.id: "pending"} if answer.created else {})


@pair("enqueue of a line/settle of the holder of its first job's key")
def enqueue_line_settle_holder(scene: Scene) -> Pair:
    """Where the first job is inserted at the second try only, it is still the first of its order key."""
    id, token = scene.running(unique_key=KEY, unique_until="finished")
    batch = [unique("finished", order_key="line"), new_job(order_key="line")]
    performance = yield (
        lambda: scene.store.enqueue(batch),
        lambda: scene.store.settle([settlement(id, token, "completed")]),
    )
    answers, refused = succeeded(performance)
    assert not refused
    expected = [answer.job.id for answer in answers if answer.created]
    scene.do("admit", 10)
    for expected_id in expected:
        (job,) = scene.do("claim", request := scene.request())
        assert job.id == expected_id
        scene.do("settle", [settlement(job.id, request.token, "completed")])


def enqueue_claim_holder(scene: Scene, on_conflict: str) -> Pair:
    id = scene.waiting(unique_key=KEY, unique_until="claimed", input='{"from":"before"}')
    new = unique("claimed", on_conflict, input='{"from":"after"}')
    performance = yield lambda: scene.store.enqueue([new]), lambda: scene.claim(limit=1)
    answer, _ = performance.answers
    # A claim may have passed over a job that was being rewritten; then it comes next.
    if scene.state(id) == "pending":
        scene.do("claim", scene.request(limit=1))
    claimed = scene.job(id)
    assert claimed.state == "running"
    waiting = {job.id: job.input_json for job in scene.all() if job.state == "pending"}
    if isinstance(answer, Conflict):
        assert on_conflict == "raise"
        assert not waiting
    elif answer[0].created:
        assert waiting == {new.id: new.input}
        assert claimed.input_json == '{"from":"before"}'
    else:
        assert answer[0].job.id == id
        assert not waiting
        kept = '{"from":"before"}' if on_conflict == "keep" else new.input
        assert claimed.input_json == kept, "what was to be replaced ran as it was"


for reaction in ("keep", "replace", "raise"):
    pair(f"enqueue, {reaction}/claim of the key's holder")(
        lambda scene, on_conflict=reaction: enqueue_claim_holder(scene, on_conflict)
    )


def enqueue_delete_holder(scene: Scene, until: str) -> Pair:
    held = unique(until)
    scene.do("enqueue", [held])
    new = unique(until)
    performance = yield lambda: scene.store.enqueue([new]), lambda: scene.store.delete([held.id])
    (answer,), (change,) = succeeded(performance)
    assert change.done
    assert answer.job.id == (new.id if answer.created else held.id)
    assert [job.id for job in scene.all()] == ([new.id] if answer.created else [])
    if not answer.created:
        (after,) = scene.do("enqueue", [new])
        assert after.created, "the key outlived the job that was deleted"


for kind in ("finished", "forever"):
    pair(f"enqueue/delete of the key's holder, {kind}")(lambda scene, until=kind: enqueue_delete_holder(scene, until))


@pair("retry/enqueue with its key")
def retry_enqueue(scene: Scene) -> Pair:
    id = scene.failed(unique_key=KEY, unique_until="finished")
    new = unique("finished")
    performance = yield lambda: scene.store.retry([id]), lambda: scene.store.enqueue([new])
    (change,), (answer,) = succeeded(performance)
    there = {job.id: job.state for job in scene.all()}
    if answer.created:
        assert (change.done, change.state) == (False, "failed")
        assert there == {id: "failed", new.id: "pending"}
    else:
        assert change.done
        assert answer.job.id == id
        assert there == {id: "pending"}


@pair("retry/retry of two with one key")
def retry_two(scene: Scene) -> Pair:
    ids = [scene.failed(unique_key=KEY, unique_until="finished") for _ in range(2)]
    performance = yield lambda: scene.store.retry([ids[0]]), lambda: scene.store.retry([ids[1]])
    changes = [change for answer in succeeded(performance) for change in answer]
    assert sorted(change.done for change in changes) == [False, True]
    assert sorted(job.state for job in scene.all()) == ["failed", "pending"]


@pair("prune/enqueue with a key whose time is over")
def prune_enqueue(scene: Scene) -> Pair:
    scene.do("enqueue", [unique("window")])
    scene.store.clock.move(timedelta(hours=2))
    new = unique("window")
    performance = yield lambda: scene.store.prune(10), lambda: scene.store.enqueue([new])
    _, (answer,) = succeeded(performance)
    assert answer.created
    (again,) = scene.do("enqueue", [unique("window")])
    assert (again.job.id, again.created) == (new.id, False), "the new key went with the old one"


@pair("expire/replace")
def expire_replace(scene: Scene) -> Pair:
    """Whoever renews a job's time is not answered with a job that has just expired by its old one."""
    scene.do("enqueue", [unique("claimed", expires_seconds=60)])
    later = an_hour_later(scene)
    new = unique("claimed", "replace", input='{"new":true}')
    performance = yield lambda: later.expire(10), lambda: scene.store.enqueue([new])
    expired, (answer,) = succeeded(performance)
    (live,) = [job for job in scene.all() if job.state == "pending"]
    assert live.input_json == new.input
    assert (live.id == new.id) == answer.created == bool(expired)

"""Settlements: fenced by pairs, sent again without harm, counted once."""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

from tests.mongodb.support import claim, enqueue, finish, get, new, raw, settle, settled
from windlass.stores.mongodb import MongoStore
from windlass.stores.store import Lease


def test_a_stale_pair_beside_a_fresh_one(store: MongoStore) -> None:
    first, second = new(), new()
    enqueue(store, first, second)
    stale, fresh = uuid4(), uuid4()
    claim(store, token=stale)
    # Both go back; the second claim takes both with a new token.
    settle(store, settled(first.id, stale, "pending"), settled(second.id, stale, "pending"))
    claim(store, token=fresh)
    refusals = settle(store, settled(first.id, stale), settled(second.id, fresh))
    assert [(refusal.id, refusal.reason) for refusal in refusals] == [(first.id, "taken by another")]
    assert (get(store, first.id).state, get(store, second.id).state) == ("running", "completed")


def test_a_stale_and_a_fresh_settlement_of_one_job_in_one_batch(store: MongoStore) -> None:
    job, token = new(), uuid4()
    enqueue(store, job)
    claim(store, token=token)
    refusals = settle(store, settled(job.id, uuid4(), output="1"), settled(job.id, token, output="2"))
    assert [refusal.reason for refusal in refusals] == ["taken by another"]
    assert get(store, job.id).output_json == "2"


def test_a_settlement_sent_again_is_accepted(store: MongoStore) -> None:
    job, token = new(), uuid4()
    enqueue(store, job)
    claim(store, token=token)
    back = settled(job.id, token, "pending", delay_seconds=0.0)
    assert settle(store, back) == []
    assert settle(store, back) == []
    again = uuid4()
    assert [one.id for one in claim(store, token=again)] == [job.id]
    assert settle(store, back) == []  # also when it runs anew: nothing changes
    assert get(store, job.id).state == "running"
    done = settled(job.id, again, output="1")
    assert settle(store, done, done) == []
    assert settle(store, done) == []
    assert [refusal.reason for refusal in settle(store, settled(job.id, uuid4()))] == ["already finished"]
    assert [refusal.reason for refusal in settle(store, settled(uuid4(), uuid4()))] == ["not found"]
    assert store.connections.run(store.counts).completed == 1


def test_the_late_settlement_of_a_rescued_job_is_refused(store: MongoStore) -> None:
    """Also where the rescuer has failed it: its end must not be taken for the worker's."""
    back, failed, token = new(), new(max_attempts=1), uuid4()
    enqueue(store, back, failed)
    claim(store, token=token)
    store.clock.move(timedelta(minutes=2))
    assert len(store.connections.run(lambda: store.rescue(10))) == 2
    assert (get(store, back.id).state, get(store, failed.id).state) == ("pending", "failed")
    refusals = settle(store, settled(back.id, token), settled(failed.id, token))
    assert [refusal.reason for refusal in refusals] == ["taken by another", "already finished"]
    assert get(store, failed.id).state == "failed"


def test_one_document_that_cannot_be_read_stops_no_rescue(store: MongoStore) -> None:
    jobs = [new() for _ in range(5)]
    enqueue(store, *jobs)
    claim(store)
    raw(store, "jobs").update_one({"_id": jobs[0].id}, {"$unset": {"input": "", "queue": ""}})
    raw(store, "jobs").update_one({"_id": jobs[1].id}, {"$set": {"attempts": "{"}})
    store.clock.move(timedelta(minutes=2))
    assert len(store.connections.run(lambda: store.rescue(10))) == 5
    states = {document["_id"]: document["state"] for document in raw(store, "jobs").find()}
    assert states == {job.id: "failed" if job is jobs[0] else "pending" for job in jobs}


def test_by_whom_was_last_heard_of(store: MongoStore) -> None:
    job, token = new(), uuid4()
    enqueue(store, job)
    (claimed,) = claim(store, token=token)
    assert claimed.claimed_at is not None
    assert store.connections.run(lambda: store.rescue(10, stale_before=claimed.claimed_at)) == []
    store.clock.move(timedelta(seconds=30))
    (renewal,) = store.connections.run(lambda: store.renew([Lease(job.id, token, 60.0)]))
    assert renewal.expires_at is not None
    later = claimed.claimed_at + timedelta(seconds=20)
    assert store.connections.run(lambda: store.rescue(10, stale_before=later)) == []
    later = claimed.claimed_at + timedelta(seconds=40)
    assert len(store.connections.run(lambda: store.rescue(10, stale_before=later))) == 1


def test_a_job_that_waits_is_settled_without_a_token(store: MongoStore) -> None:
    waiting, running = new(queue="other"), new()
    enqueue(store, waiting, running)
    claim(store)
    refusals = settle(store, settled(waiting.id, None, output="1"), settled(running.id, None))
    assert [refusal.id for refusal in refusals] == [running.id]
    assert get(store, waiting.id).state == "completed"
    assert [refusal.reason for refusal in settle(store, settled(waiting.id, None))] == ["already finished"]


def test_sent_back_though_cancelled_is_cancelled(store: MongoStore) -> None:
    job, token = new(), uuid4()
    enqueue(store, job)
    claim(store, token=token)
    (change,) = store.connections.run(lambda: store.cancel([job.id]))
    assert (change.done, change.state) == (True, "running")
    back = settled(job.id, token, "pending")
    assert settle(store, back) == []
    assert settle(store, back) == []
    assert get(store, job.id).state == "cancelled"
    assert store.connections.run(store.counts).cancelled == 1


def test_each_job_gets_its_own_output(store: MongoStore) -> None:
    jobs, token = [new() for _ in range(20)], uuid4()
    enqueue(store, *jobs)
    claim(store, 20, token=token)
    outputs = {job.id: '"$' + "x" * 300_000 + f'{number}"' for number, job in enumerate(jobs[:-1])}
    ends = [settled(id, token, output=output) for id, output in outputs.items()]
    assert settle(store, *ends, settled(jobs[-1].id, token, "failed", error='{"type":"$E","message":""}')) == []
    for id, output in outputs.items():
        job = get(store, id)
        assert (job.state, job.output_json, job.error, job.lease_expires_at) == ("completed", output, None, None)
    assert str(get(store, jobs[-1].id).error) == "$E"


def test_a_job_that_is_not_kept_leaves_no_trace(store: MongoStore) -> None:
    id = finish(store, keep_seconds=0)
    assert raw(store, "jobs").count_documents({"_id": id}) == 0
    assert store.connections.run(store.counts).total == 0
    kept = finish(store, keep_seconds=-1)
    assert "purge_at" not in raw(store, "jobs").find_one({"_id": kept})


def test_counts_follow_each_step(store: MongoStore) -> None:
    def count(*states: str) -> list[int]:
        counts = store.connections.run(store.counts)
        return [counts[state] for state in states]

    failed, completed = finish(store, "failed"), finish(store)
    kept = finish(store, keep_seconds=-1)
    enqueue(store, new(), new(queue="other", type="u"))
    assert count("pending", "completed", "failed") == [2, 2, 1]
    assert store.connections.run(lambda: store.prune(10)) == 0  # folds
    assert raw(store, "tallies").count_documents({"raw": True}) == 0
    assert count("pending", "completed", "failed") == [2, 2, 1]
    store.connections.run(lambda: store.retry([failed]))
    assert count("pending", "completed", "failed") == [3, 2, 0]
    store.connections.run(lambda: store.delete([completed]))
    assert count("pending", "completed", "failed") == [3, 1, 0]
    finish(store, queue="q")
    store.clock.move(timedelta(days=2))
    assert store.connections.run(lambda: store.prune(10)) == 1
    assert count("completed") == [1]
    assert get(store, kept).state == "completed"
    tallies = store.connections.run(store.counts).tallies
    assert {(tally.queue, tally.type, tally.state) for tally in tallies if tally.queue == "other"} == {
        ("other", "u", "pending")
    }


def test_finished_documents_and_their_tallies_expire_by_index(store: MongoStore) -> None:
    id = finish(store)
    document = raw(store, "jobs").find_one({"_id": id})
    assert document["purge_at"] - document["finished_at"] == timedelta(days=1)
    tally = raw(store, "tallies").find_one()
    assert timedelta(0) <= tally["purge_at"] - document["purge_at"] <= timedelta(minutes=15)
    for collection in ("jobs", "tallies"):
        assert raw(store, collection).index_information()["purge"]["expireAfterSeconds"] == 0

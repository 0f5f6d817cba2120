"""Reading: one job, pages of them, counts."""

from __future__ import annotations

from uuid import uuid4

import pytest

from tests.api.either import Either
from windlass import InvalidInput, JobNotFound, Page, Windlass


async def test_a_job_by_its_id(app: Windlass, either: Either) -> None:
    job = await either.enqueue("anything", {"a": 1})
    assert (await either.get(job.id)).input == {"a": 1}
    assert (await either.get(str(job.id))) == job
    assert await either.get(uuid4()) is None
    assert (await either.of(job).refresh()).state == "pending"
    await either.of(job).delete()
    with pytest.raises(JobNotFound, match=str(job.id)):
        await either.of(job).refresh()
    with pytest.raises(InvalidInput, match="UUID"):
        await either.get("42")


async def test_pages_newest_first(app: Windlass, either: Either) -> None:
    jobs = await either.enqueue_many([app.call("anything", {"number": number}) for number in range(25)])
    newest_first = sorted(jobs, key=lambda job: job.id, reverse=True)
    page = await either.list()
    assert isinstance(page, Page)
    assert list(page) == newest_first
    assert page.next_cursor is None
    seen, cursor, pages = [], None, 0
    while True:
        page = await either.list(limit=10, cursor=cursor)
        seen += page
        pages += 1
        cursor = page.next_cursor
        if cursor is None:
            break
        # What comes in meanwhile moves no page.
        await either.enqueue("anything", {})
    assert seen == newest_first
    assert pages == 3
    assert len(await either.list(limit=25, cursor=None)) == 25


async def test_pages_of_what_matches(app: Windlass, either: Either) -> None:
    wanted = await either.enqueue("report", {}, queue="slow", tenant="acme")
    await either.enqueue("report", {}, queue="quick")
    await either.enqueue("mail", {}, queue="slow")
    for name, value in {"queue": "slow", "type": "report", "tenant": "acme", "chain": wanted.id}.items():
        assert wanted in list(await either.list(**{name: value}))
    assert list(await either.list(type="report", queue="slow")) == [wanted]
    assert list(await either.list(tenant="acme")) == [wanted]
    assert list(await either.list(chain=str(wanted.id), state="pending")) == [wanted]
    assert len(await either.list(tenant="")) == 2
    (attempt,) = await either.claim(queues=["slow"], types=["report"])
    assert list(await either.list(state="running")) == [wanted]
    await either.of(attempt).complete()
    assert list(await either.list(state="completed", type="report")) == [wanted]
    assert list(await either.list(state="failed")) == []


@pytest.mark.parametrize(
    "wrong", [{"limit": 0}, {"limit": 1001}, {"limit": True}, {"cursor": "x"}, {"state": "done"}, {"chain": "x"}]
)
async def test_pages_that_cannot_be(app: Windlass, either: Either, wrong: dict) -> None:
    with pytest.raises(InvalidInput, match=next(iter(wrong)).replace("chain", "id")):
        await either.list(**wrong)


async def test_counts_by_state_queue_and_type(app: Windlass, either: Either) -> None:
    assert (await either.counts()).total == 0
    for number in range(5):
        await either.enqueue("report", {"number": number}, queue="slow" if number else "quick")
    attempts = await either.claim(limit=3, queues=["slow"])
    await either.of(attempts[0]).complete()
    await either.of(attempts[1]).fail("no")
    counts = await either.counts()
    assert dict(counts) == {"blocked": 0, "pending": 2, "running": 1, "completed": 1, "failed": 1, "cancelled": 0}
    assert (counts.pending, counts["failed"], counts.total) == (2, 1, 5)
    by_queue = {(tally.queue, tally.state): tally.count for tally in counts.tallies}
    assert by_queue[("quick", "pending")] == 1
    assert by_queue[("slow", "completed")] == 1

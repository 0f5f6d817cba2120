"""`get` and `list`: they find live and finished jobs."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from ..job import Job
from ..lifecycle import State
from ..unique import Unique
from .bench import Bench, facts, new_job


class Getting:
    def test_those_that_exist_each_once(self, bench: Bench) -> None:
        jobs = [bench.add(), bench.hold().job, bench.finish(), bench.finish("failed"), bench.finish("cancelled")]
        found = bench.get(uuid4(), *(job.id for job in jobs), jobs[0].id, uuid4())
        assert sorted(job.id for job in found) == sorted(job.id for job in jobs)
        states = {job.id: job.state for job in found}
        assert [states[job.id] for job in jobs] == ["pending", "running", "completed", "failed", "cancelled"]

    def test_of_none_there_is_none(self, bench: Bench) -> None:
        assert bench.get() == []
        assert bench.get(uuid4()) == []

    def test_a_job_on_its_way_to_its_end_is_found_once(self, bench: Bench) -> None:
        bench.add_many(100)
        claimed = bench.claim(100)

        def settle_or_look(number: int) -> set[int]:
            if number == 0:
                for held in claimed:
                    bench.accept(held.completes())
                return {100}
            return {len(bench.get(*(held.id for held in claimed))) for _ in range(20)}

        assert bench.at_once(4, settle_or_look) == [{100}] * 4


class Listing:
    def everything(self, bench: Bench) -> list[Job]:
        """Add one job of each kind, and return them newest first."""
        jobs = [
            bench.add(type="mail", queue="a"),
            bench.finish("failed", type="mail", queue="b", tenant="acme"),
            bench.hold(type="bill", queue="c").job,
            bench.finish("completed", type="bill", queue="d"),
            bench.finish("cancelled", type="mail", queue="e"),
            bench.add(type="bill", queue="a", tenant="acme", delay_seconds=60),
        ]
        return jobs[::-1]

    def test_since_a_moment(self, bench: Bench) -> None:
        bench.finish("failed")
        bench.add()
        bench.pass_time(hours=1)
        late = [bench.finish("failed"), bench.add(queue="late")]
        since = late[0].created_at
        assert bench.find(since=since) == late[::-1]
        assert bench.find(since=since, state="failed") == late[:1]

    def test_newest_first_live_and_finished_together(self, bench: Bench) -> None:
        jobs = self.everything(bench)
        assert bench.find() == jobs
        assert [job.state for job in bench.find()] == [
            *("pending", "cancelled", "completed", "running", "failed", "pending")
        ]

    @pytest.mark.parametrize(
        ("filter", "wanted"),
        [
            ({"state": "pending"}, [0, 5]),
            ({"state": "running"}, [3]),
            ({"state": "completed"}, [2]),
            ({"state": "failed"}, [4]),
            ({"state": "cancelled"}, [1]),
            ({"state": "blocked"}, []),
            ({"type": "mail"}, [1, 4, 5]),
            ({"queue": "a"}, [0, 5]),
            ({"tenant": "acme"}, [0, 4]),
            ({"tenant": ""}, [1, 2, 3, 5]),
            ({"type": "mail", "state": "failed"}, [4]),
            ({"type": "mail", "tenant": "acme"}, [4]),
            ({"type": "bill", "queue": "a", "tenant": "acme", "state": "pending"}, [0]),
            ({"type": "none such"}, []),
        ],
        ids=str,
    )
    def test_only_what_the_filter_wants(self, bench: Bench, filter: dict[str, Any], wanted: list[int]) -> None:
        jobs = self.everything(bench)
        assert bench.find(**filter) == [jobs[number] for number in wanted]
        assert [job for page in bench.pages(1, **filter) for job in page] == [jobs[number] for number in wanted]

    @pytest.mark.parametrize("state", ["failed", "cancelled"])
    def test_what_ended_badly_in_the_order_of_its_end(self, bench: Bench, state: State) -> None:
        """The job that ended last comes first. Jobs that ended at the same time are in the order of their ids."""
        old, young = bench.hold(queue="old"), bench.hold(queue="young")
        others = [bench.finish(state), bench.finish("completed")]
        for held in (young, old):
            bench.pass_time(hours=1)
            bench.accept(held.ends(state))
        together = [bench.hold(queue=f"together {number}") for number in range(3)]
        bench.pass_time(hours=1)
        bench.accept(*(held.ends(state) for held in together))
        wanted = [*(held.id for held in together[::-1]), old.id, young.id, others[0].id]
        assert [job.id for job in bench.find(state=state)] == wanted
        for limit in (1, 2, 4):
            assert [job.id for page in bench.pages(limit, state=state) for job in page] == wanted
        since = bench.look(old).finished_at
        assert [job.id for job in bench.find(state=state, since=since)] == wanted[:4]
        assert [job.id for page in bench.pages(1, state=state, since=since) for job in page] == wanted[:4]

    def test_a_chain_by_its_first_job(self, bench: Bench) -> None:
        live, finished = bench.add(), bench.finish()
        assert bench.find(chain=live.id) == [live]
        assert bench.find(chain=finished.id) == [finished]
        assert bench.find(chain=finished.id, state="failed") == []
        assert bench.find(chain=uuid4()) == []

    @pytest.mark.parametrize("until", ["claimed", "finished", "forever", "10m"])
    def test_who_holds_a_unique_key(self, bench: Bench, until: str) -> None:
        """The job is found while it holds the key, and only for its own tenant."""
        key = Unique("key", until=until)
        first = bench.add(unique=key)
        other = bench.add(unique=key, tenant="acme", queue="other")
        bench.add(unique=Unique("key 2", until=until), queue="other")
        bench.add(queue="other")
        assert bench.find(unique="key") == bench.find(unique="key", tenant="") == [first]
        assert bench.find(unique="key", tenant="acme") == [other]
        assert bench.find(unique="key", queue="other") == bench.find(unique="key", tenant="none such") == []
        assert bench.find(unique="ke") == bench.find(unique="key\x7f") == []
        held = bench.claim_one()
        assert held.id == first.id
        assert [job.id for job in bench.find(unique="key")] == ([] if until == "claimed" else [first.id])
        bench.accept(held.completes())
        kept = [] if until in ("claimed", "finished") else [first.id]
        assert [job.id for job in bench.find(unique="key")] == kept
        assert [job.id for job in bench.find(unique="key", state="completed")] == kept
        assert bench.find(unique="key", state="pending") == []
        bench.pass_time(minutes=11)
        assert [job.id for job in bench.find(unique="key")] == ([first.id] if until == "forever" else [])

    def test_a_page_has_no_more_than_asked_for(self, bench: Bench) -> None:
        jobs = self.everything(bench)
        assert bench.find(2) == jobs[:2]
        assert bench.find(3, before=jobs[1]) == jobs[2:5]
        assert bench.find(10, before=jobs[-1]) == []

    @pytest.mark.parametrize("limit", [1, 3, 7])
    def test_pages_have_no_gaps_and_no_doubles_while_jobs_come_and_end(self, bench: Bench, limit: int) -> None:
        jobs = bench.add_many(20)
        for _ in range(6):
            bench.accept(bench.claim_one().completes())
        seen = []
        for page in bench.pages(limit):
            assert len(page) <= limit
            seen += page
            bench.enqueue(new_job())
            held = bench.claim_one()
            bench.accept(held.completes())
        assert seen == jobs[::-1]

    def test_a_listed_job_says_all_that_it_says_when_asked_alone(self, bench: Bench) -> None:
        bench.finish("failed", labels='{"a":"b"}', tenant="acme", priority=3)
        bench.hold(trace="00-1")
        for job in bench.find():
            assert facts(job) == facts(bench.look(job))

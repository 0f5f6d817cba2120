"""The same operations, driven in an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar
from uuid import uuid4

import pytest

from ..errors import Conflict
from ..job import Job
from ..operation import Operation
from ..outcome import Fail
from ..stores.store import ClaimRequest, Enqueued, Filter, Store
from ..unique import Unique
from .bench import Bench, Held, new_job

T = TypeVar("T")


class Loop:
    """An async `Bench` with the methods that these tests need."""

    def __init__(self, store: Store) -> None:
        self.store = store

    async def run(self, make: Callable[[], Operation[T]]) -> T:
        return await self.store.connections.arun(make)

    async def add(self, **fields: Any) -> Enqueued:
        (answer,) = await self.run(lambda: self.store.enqueue([new_job(**fields)]))
        return answer

    async def claim(self, limit: int = 10) -> list[Held]:
        request = ClaimRequest(queue="default", limit=limit, token=uuid4(), worker="worker")
        return [Held(job, request.token) for job in await self.run(lambda: self.store.claim(request))]

    async def look(self, job: Job | Held) -> Job:
        (found,) = await self.run(lambda: self.store.get([job.id]))
        return found


class Asynchronous:
    def run(self, bench: Bench, test: Callable[[Loop], Coroutine[Any, Any, None]]) -> None:
        """Run the test in a new event loop, and close the store's async connections in that loop."""

        async def whole() -> None:
            try:
                await test(Loop(bench.store))
            finally:
                await bench.store.connections.aclose()

        asyncio.run(whole())

    def test_a_job_goes_its_way(self, bench: Bench) -> None:
        async def test(loop: Loop) -> None:
            job = (await loop.add(input='{"n":1}')).job
            (held,) = await loop.claim()
            (renewal,) = await loop.run(lambda: loop.store.renew([held.lease(100)]))
            assert renewal.expires_at is not None
            assert await loop.run(lambda: loop.store.settle([held.completes('"done"')])) == []
            done = await loop.look(job)
            assert (done.state, done.output, done.input) == ("completed", "done", {"n": 1})
            assert (await loop.run(loop.store.counts)).completed == 1
            assert await loop.run(lambda: loop.store.list(Filter(), 10)) == [job]

        self.run(bench, test)

    @pytest.mark.parametrize("count", [1, 5, 60])
    def test_few_and_many_go_in(self, bench: Bench, count: int) -> None:
        async def test(loop: Loop) -> None:
            jobs = [new_job(labels='{"a":"b"}') for _ in range(count)]
            answers = await loop.run(lambda: loop.store.enqueue(jobs))
            assert [answer.job.id for answer in answers] == [job.id for job in jobs]
            assert len(await loop.claim(100)) == count

        self.run(bench, test)

    def test_unique_keys_do_not_change_the_order_of_a_batch(self, bench: Bench) -> None:
        async def test(loop: Loop) -> None:
            jobs = [new_job(order_key="key", unique=Unique(f"{9 - number}")) for number in range(3)]
            await loop.run(lambda: loop.store.enqueue(jobs))
            await loop.run(lambda: loop.store.admit(10))
            for job in jobs:
                (held,) = await loop.claim()
                assert held.id == job.id
                await loop.run(lambda held=held: loop.store.settle([held.completes()]))  # type: ignore[misc]

        self.run(bench, test)

    def test_a_stale_token_is_refused(self, bench: Bench) -> None:
        async def test(loop: Loop) -> None:
            await loop.add()
            (stale,) = await loop.claim()
            await loop.run(lambda: loop.store.settle([stale.gives_back()]))
            (fresh,) = await loop.claim()
            (refusal,) = await loop.run(lambda: loop.store.settle([stale.completes(), fresh.completes()]))
            assert (refusal.id, refusal.token) == (stale.id, stale.token)
            assert (await loop.look(fresh)).state == "completed"

        self.run(bench, test)

    def test_a_conflict_leaves_nothing(self, bench: Bench) -> None:
        async def test(loop: Loop) -> None:
            await loop.add(unique=Unique("key"))
            jobs = [new_job(), new_job(unique=Unique("key", on_conflict="raise"))]
            with pytest.raises(Conflict):
                await loop.run(lambda: loop.store.enqueue(jobs))
            assert (await loop.run(loop.store.counts)).total == 1

        self.run(bench, test)

    def test_jobs_are_acted_on(self, bench: Bench) -> None:
        async def test(loop: Loop) -> None:
            job = (await loop.add()).job
            (held,) = await loop.claim()
            await loop.run(lambda: loop.store.settle([held.raises(Fail("no"))]))
            for act, done in ((loop.store.cancel, False), (loop.store.retry, True), (loop.store.run_now, True)):
                (change,) = await loop.run(lambda act=act: act([job.id]))  # type: ignore[misc]
                assert change.done is done
            (held,) = await loop.claim()
            loop.store.clock.move(held.job.lease_expires_at - held.job.created_at)  # type: ignore[operator]
            assert len(await loop.run(lambda: loop.store.rescue(10))) == 1
            assert (await loop.run(lambda: loop.store.delete([job.id])))[0].done
            assert await loop.run(lambda: loop.store.prune(10)) == 0

        self.run(bench, test)

    def test_of_many_tasks_at_once_each_gets_its_own(self, bench: Bench) -> None:
        async def test(loop: Loop) -> None:
            added = await asyncio.gather(*(loop.add() for _ in range(40)))
            claimed = await asyncio.gather(*(loop.claim(1) for _ in range(40)))
            ids = [held.id for some in claimed for held in some]
            ids += [held.id for held in await loop.claim(40)]
            assert sorted(ids) == sorted(answer.job.id for answer in added)

        self.run(bench, test)

    def test_a_store_serves_one_loop_after_another_and_threads_too(self, bench: Bench) -> None:
        async def test(loop: Loop) -> None:
            await loop.add()

        for _ in range(3):
            self.run(bench, test)
            bench.add()
        assert bench.counts().pending == 6

    def test_migrations_run_there_too(self, bare_store: Store) -> None:
        async def test(loop: Loop) -> None:
            applied = await asyncio.gather(*(loop.run(loop.store.migrate) for _ in range(5)))
            assert len([names for names in applied if names]) == 1
            assert await loop.run(loop.store.check_schema)

        self.run(Bench(bare_store), test)

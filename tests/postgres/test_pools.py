"""Places in a pool: a thread or task that is interrupted while it waits for one takes nothing from the others."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from windlass import Windlass
from windlass.stores.postgres.blocks import RESET, BlockConnection
from windlass.stores.postgres.connections import PostgresConnections
from windlass.worker.threads import Interruption, _raise_in

SOON = 15.0  # seconds; a place here is held until the test says otherwise


@pytest.fixture
def app(fresh_postgres_url: str) -> Iterator[Windlass]:
    app = Windlass(fresh_postgres_url, pool_size=1)
    app.migrate()
    yield app
    app.close()


def connections_of(app: Windlass) -> PostgresConnections:
    connections: Any = app.store.connections
    assert isinstance(connections, PostgresConnections)
    return connections


class Waiter:
    """A thread that waits for a place, and gives it back at once."""

    def __init__(self, open: Callable[[], Any]) -> None:
        self.outcome: object = None
        self._open = open
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            with self._open():
                self.outcome = "had it"
        except BaseException as error:
            self.outcome = error

    def interrupt(self) -> None:
        """As a worker interrupts a sync handler."""
        assert self._thread.ident is not None
        _raise_in(self._thread.ident, Interruption)

    def has_ended(self) -> bool:
        self._thread.join(SOON)
        return not self._thread.is_alive()


def until_waiting(connections: PostgresConnections, kind: str, count: int) -> None:
    """Until so many threads wait for a place."""
    blocks, pools = connections.blocks._of_threads.get(), connections._pools.get().values()
    places: Any = blocks.places if kind == "block" else next(iter(pools))._places
    deadline = time.monotonic() + SOON
    while len(places._cond._waiters) < count:
        assert time.monotonic() < deadline
        time.sleep(0.005)


def opening(connections: PostgresConnections, kind: str) -> Callable[[], Any]:
    return connections.transaction if kind == "block" else connections.link


@pytest.mark.parametrize("kind", ["call", "block"])
def test_a_thread_that_waits_for_a_place_can_be_interrupted(app: Windlass, kind: str) -> None:
    connections = connections_of(app)
    open = opening(connections, kind)
    with open():
        waiter = Waiter(open)
        until_waiting(connections, kind, 1)
        waiter.interrupt()
        assert waiter.has_ended(), "it waits until the place is free"
        assert isinstance(waiter.outcome, Interruption)
    following = Waiter(open)
    assert following.has_ended()
    assert following.outcome == "had it"


@pytest.mark.parametrize("kind", ["call", "block"])
def test_a_thread_that_is_interrupted_as_a_place_comes_free_leaves_it_to_the_next(app: Windlass, kind: str) -> None:
    connections = connections_of(app)
    open = opening(connections, kind)
    with open():
        first = Waiter(open)
        until_waiting(connections, kind, 1)
        second = Waiter(open)
        until_waiting(connections, kind, 2)
        first.interrupt()
    assert first.has_ended()
    assert second.has_ended(), "the place is free, and it has not heard of that"
    assert second.outcome == "had it"


async def test_a_task_that_is_cancelled_while_it_waits_for_a_place_leaves_the_pool_whole(app: Windlass) -> None:
    entered, leave = asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        async with app.store.connections.atransaction():
            entered.set()
            await leave.wait()

    async def use() -> str:
        async with app.store.connections.atransaction():
            return "had it"

    holding = asyncio.create_task(hold())
    await asyncio.wait_for(entered.wait(), SOON)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(use(), 0.05)
    cancelled, patient = asyncio.create_task(use()), asyncio.create_task(use())
    await asyncio.sleep(0.05)
    leave.set()
    cancelled.cancel()
    assert await asyncio.wait_for(patient, SOON) == "had it"
    await holding
    assert await asyncio.wait_for(use(), SOON) == "had it"
    await app.aclose()


async def test_a_call_that_is_cancelled_in_the_middle_gives_its_place_back(app: Windlass) -> None:
    """It waits for a lock of another transaction, and others wait for its place."""
    job = await app.aenqueue("work")
    with psycopg.connect(app.url) as own:
        own.execute("SELECT FROM windlass_jobs WHERE id = %s FOR UPDATE", [job.id])
        first = asyncio.create_task(job.acancel())
        with psycopg.connect(app.url, autocommit=True) as looking:
            waits = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
            async with asyncio.timeout(SOON):
                while not looking.execute(waits).fetchall():  # noqa: ASYNC110, nobody tells
                    await asyncio.sleep(0.01)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(app.acounts(), 0.05)
        others = [asyncio.create_task(app.acounts()) for _ in range(3)]
        await asyncio.sleep(0.05)
        others[0].cancel()
        first.cancel()
        for other in others[1:]:
            assert (await asyncio.wait_for(other, SOON)).total == 1
    await app.aclose()


def test_a_block_that_is_interrupted_at_its_end_closes_its_connection(
    app: Windlass, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute, successors = BlockConnection.execute, []

    def interrupted(connection: Any, query: Any, *arguments: Any, **options: Any) -> Any:
        if query == RESET:
            successors.append(connection)
            raise Interruption
        return execute(connection, query, *arguments, **options)

    monkeypatch.setattr(BlockConnection, "execute", interrupted)
    with pytest.raises(Interruption), connections_of(app).transaction():
        pass
    assert [one.closed for one in successors] == [True]


def test_a_close_beside_a_thread_that_takes_the_last_connection(app: Windlass) -> None:
    class Taken(list[Any]):
        """It looks as if it has one, and another thread takes that first."""

        def __len__(self) -> int:
            return 1

    connections = connections_of(app)
    connections.blocks._of_threads.get().kept = Taken()
    connections.close()

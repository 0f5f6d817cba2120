"""`close` beside calls that are under way."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from windlass import StoreUnavailable, Windlass
from windlass.operation import Operation, Statement
from windlass.stores.sql.query import Query
from windlass.stores.sqlite.own import OwnLink
from windlass.stores.sqlite.writer import Writer

ADD = Query("add", "INSERT INTO things VALUES (:name)")


async def test_aclose_lets_the_blocks_of_its_loop_end(fresh_sqlite_url: str) -> None:
    """A call waits for the block, `aclose` waits for the call, and the block needs the event loop to end."""
    app = Windlass(fresh_sqlite_url)
    await app.amigrate()
    inside, ended = asyncio.Event(), []

    async def block() -> None:
        async with app.store.connections.atransaction():
            inside.set()
            await asyncio.sleep(0.5)
        ended.append(time.monotonic())

    holder = asyncio.create_task(block())
    await inside.wait()
    call = asyncio.create_task(app.aenqueue("some", {}))
    await asyncio.sleep(0.1)
    began = time.monotonic()
    await app.aclose()
    await asyncio.wait_for(holder, 5)
    assert ended[0] - began < 5, "the block could not end before aclose"
    assert (await call).created
    await app.aclose()


class Links:
    """The writer's connections: how many it has opened, and how many of them are open."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.opened: list[sqlite3.Connection] = []
        with sqlite3.connect(path) as connection:
            connection.execute("CREATE TABLE things (name text)")

    def open(self) -> OwnLink:
        self.opened.append(sqlite3.connect(self.path, isolation_level=None, check_same_thread=False))
        return OwnLink(self.opened[-1], str(self.path), 1.0)

    @property
    def still_open(self) -> int:
        return sum(map(_is_open, self.opened))

    @property
    def things(self) -> list[str]:
        with sqlite3.connect(self.path) as connection:
            return [row[0] for row in connection.execute("SELECT name FROM things ORDER BY name")]


def _is_open(connection: sqlite3.Connection) -> bool:
    try:
        connection.execute("SELECT 1")
    except sqlite3.ProgrammingError:
        return False
    return True


class Pause:
    """The first operation waits in it, so that the writer is busy."""

    def __init__(self) -> None:
        self.reached, self.over = threading.Event(), threading.Event()

    def __call__(self) -> None:
        self.reached.set()
        self.over.wait(10)


def add(name: str, then: Callable[[], None] = lambda: None) -> Callable[[], Operation[str]]:
    def operation() -> Operation[str]:
        yield Statement(ADD, {"name": name})
        then()
        return name

    return operation


@pytest.fixture
def links(tmp_path: Path) -> Links:
    return Links(tmp_path / "things.db")


def test_a_call_after_the_close_is_refused_and_not_done(links: Links) -> None:
    """While the writer is still busy with an earlier operation, which would take this one into its transaction."""
    writer, pause = Writer(links.open), Pause()
    first = writer.submit(add("before", pause))
    assert pause.reached.wait(10)
    closing = threading.Thread(target=writer.close)
    closing.start()
    time.sleep(0.2)  # it waits for the first operation
    try:
        with pytest.raises(StoreUnavailable, match="closed"):
            writer.submit(add("after"))
    finally:
        pause.over.set()
        closing.join(10)
    assert first.result(10) == "before"
    assert links.things == ["before"]
    assert links.still_open == 0


def test_an_interpreter_that_ends_refuses_the_call_and_does_not_run_it(links: Links) -> None:
    """Then the thread takes no more work, although the writer is not closed."""
    writer, pause = Writer(links.open), Pause()
    writer.submit(add("before", pause))
    assert pause.reached.wait(10)
    writer._thread.shutdown(wait=False)
    with pytest.raises(StoreUnavailable):
        writer.submit(add("after"))
    pause.over.set()
    writer._thread.shutdown()
    assert links.things == ["before"]


def test_calls_against_close(links: Links) -> None:
    """Each call is either done or refused, and no connection is left open."""
    done: list[str] = []
    refused: list[str] = []

    def call(writer: Writer, prefix: str) -> None:
        for number in range(200):
            name = f"{prefix}-{number}"
            try:
                done.append(writer.submit(add(name)).result(10))
            except StoreUnavailable:
                refused.append(name)
                return

    for turn in range(10):
        writer = Writer(links.open)
        threads = [threading.Thread(target=call, args=(writer, f"{turn}-{number}")) for number in range(4)]
        for thread in threads:
            thread.start()
        time.sleep(0.01)
        writer.close()
        for thread in threads:
            thread.join(20)
    assert refused
    assert links.things == sorted(done)
    assert links.still_open == 0


def test_a_second_close_does_nothing(links: Links) -> None:
    writer = Writer(links.open)
    writer.submit(add("x")).result(10)
    writer.close()
    writer.close()
    assert links.still_open == 0

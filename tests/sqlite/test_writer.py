"""Operations that come together are one transaction, and none of them suffers from another."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from windlass.conformance.bench import new_job
from windlass.operation import Operation, Sleep, Statement
from windlass.stores.sql.query import Query
from windlass.stores.sqlite.own import OwnLink
from windlass.stores.sqlite.store import SqliteStore
from windlass.stores.sqlite.writer import Writer

ADD = Query("add", "INSERT INTO things VALUES (:name)")


def add(name: str, *, then: Exception | None = None) -> Callable[[], Operation[str]]:
    def operation() -> Operation[str]:
        yield Statement(ADD, {"name": name})
        if then is not None:
            raise then
        return name

    return operation


def hold(started: threading.Event, release: threading.Event) -> Callable[[], Operation[None]]:
    """An operation that is at work until it is let go, so that others gather behind it."""

    def operation() -> Operation[None]:
        started.set()
        release.wait(10)
        yield Sleep(0)

    return operation


class Scene:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.texts: list[str] = []
        with sqlite3.connect(path) as connection:
            connection.execute("CREATE TABLE things (name text PRIMARY KEY)")
        self.writer = Writer(self.open)

    def open(self) -> OwnLink:
        connection = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
        connection.set_trace_callback(self.texts.append)
        return OwnLink(connection, str(self.path), 1.0)

    def together(self, *operations: Callable[[], Operation[object]]) -> list[object]:
        """What each of them came to, when all of them waited at once."""
        started, release = threading.Event(), threading.Event()
        held = self.writer.submit(hold(started, release))
        assert started.wait(10)
        futures = [self.writer.submit(operation) for operation in operations]
        release.set()
        held.result(10)
        return [future.exception(10) or future.result(10) for future in futures]

    @property
    def things(self) -> list[str]:
        with sqlite3.connect(self.path) as connection:
            return [row[0] for row in connection.execute("SELECT name FROM things ORDER BY name")]


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path / "things.db")


def test_those_that_waited_share_one_commit(scene: Scene) -> None:
    assert scene.together(*(add(name) for name in "abcdef")) == list("abcdef")
    assert scene.things == list("abcdef")
    assert scene.texts.count("COMMIT") == 1
    scene.writer.close()


def test_an_operation_that_fails_undoes_no_other(scene: Scene) -> None:
    failure = RuntimeError("no")
    assert scene.together(add("a"), add("b", then=failure), add("c")) == ["a", failure, "c"]
    assert scene.things == ["a", "c"]
    scene.writer.close()


def test_where_all_fail_the_file_is_left_alone(scene: Scene) -> None:
    before = scene.path.read_bytes()
    failures = [RuntimeError("no"), ValueError("never")]
    assert scene.together(*(add(str(failure), then=failure) for failure in failures)) == failures
    assert scene.path.read_bytes() == before
    scene.writer.close()


def test_what_wants_no_transaction_goes_alone_and_the_others_with_it(scene: Scene) -> None:
    def vacuum() -> Operation[str]:
        yield Statement(Query("vacuum", "VACUUM"), alone=True)
        return "vacuumed"

    assert scene.together(add("a"), vacuum, add("b")) == ["a", "vacuumed", "b"]
    assert scene.things == ["a", "b"]
    scene.writer.close()


def test_a_lost_transaction_is_done_again_one_by_one(scene: Scene) -> None:
    """As after a full disk, where SQLite rolls all back by itself."""
    tries = []

    def lose() -> Operation[str]:
        tries.append("try")
        yield Statement(ADD, {"name": "b"})
        if len(tries) == 1:
            yield Statement(Query("lose", "ROLLBACK"))
            yield Statement(ADD, {"name": "never"})
        return "b"

    assert scene.together(add("a"), lose, add("c")) == ["a", "b", "c"]
    assert scene.things == ["a", "b", "c"]
    scene.writer.close()


def test_forty_threads_enqueue_at_once(tmp_path: Path) -> None:
    store = SqliteStore(str(tmp_path / "jobs.db"))
    store.connections.run(store.migrate)

    def enqueue(_: int) -> bool:
        return store.connections.run(lambda: store.enqueue([new_job()]))[0].created

    with ThreadPoolExecutor(40) as threads:
        assert all(threads.map(enqueue, range(2_000)))
    assert store.connections.run(store.counts).total == 2_000
    store.connections.close()

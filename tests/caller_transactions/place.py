"""Where the jobs live, and what a bystander sees of it."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import psycopg
from pymongo import MongoClient

from windlass import Job, Task, Windlass
from windlass.stores.wakeup import Hint

PATIENCE_SECONDS = 60.0
AGAIN_SECONDS = 1.0  # a hint may be lost
GLANCES_SECONDS = 0.15  # in which SQLite's listener looks at the file several times


class Place:
    """An app of its own, a listener, and a table (a collection) for the callers' own writes."""

    def __init__(self, url: str, *, schema: str = "public") -> None:
        self.url, self.is_sqlite = url, url.startswith("sqlite")
        self.app = Windlass(url, schema=schema)
        self.table = f"{schema}.notes" if url.startswith("postgres") else "notes"
        self.app.migrate()
        self._make_table()
        self.heard: list[Hint | None] = []
        self.app.store.wakeup.listen(self.heard.append)
        wait_until(lambda: None in self.heard)

        @self.app.task
        def remember(number: int) -> int:
            return number

        self.remember = remember

    def new_task(self) -> Task[..., Any]:
        """The task, with a queue that nobody else uses."""
        self.heard.clear()
        self.queue = f"queue-{uuid4().hex}"
        return self.remember.using(queue=self.queue)

    def jobs(self) -> list[Job]:
        return list(self.app.list(queue=self.queue))

    def has_heard(self) -> bool:
        """Of the queue; SQLite only tells that something has changed."""
        return (None if self.is_sqlite else Hint("ready", self.queue)) in self.heard

    def wait_for_hint(self) -> None:
        wait_until(self.has_heard)

    def hears_nothing(self) -> bool:
        """A hint that is sent last comes last: by then any other would have been heard."""
        if self.is_sqlite:
            time.sleep(GLANCES_SECONDS)
        else:
            last = Hint("ready", f"last-{uuid4().hex}")

            def is_sent_and_heard() -> bool:
                self.app.store.wakeup.send([last])
                return comes_true(lambda: last in self.heard, AGAIN_SECONDS)

            wait_until(is_sent_and_heard)
        return not self.has_heard()

    def notes(self) -> set[str]:
        """What callers have written and committed."""
        if self.is_sqlite:
            with sqlite3.connect(self.url.removeprefix("sqlite:///")) as file:
                return {row[0] for row in file.execute("SELECT text FROM notes")}
        if self.url.startswith("postgres"):
            with psycopg.connect(self.url) as connection:
                return {row[0] for row in connection.execute(f"SELECT text FROM {self.table}")}
        client: MongoClient[Any] = MongoClient(self.url)
        with client:
            return {document["text"] for document in client.get_default_database()["notes"].find()}

    def _make_table(self) -> None:
        statement = f"CREATE TABLE {self.table} (text text)"
        if self.is_sqlite:
            with sqlite3.connect(self.url.removeprefix("sqlite:///")) as file:
                file.execute(statement)
        elif self.url.startswith("postgres"):
            with psycopg.connect(self.url) as connection:
                connection.execute(statement)
        else:
            client: MongoClient[Any] = MongoClient(self.url)
            with client:
                client.get_default_database().create_collection("notes")

    def close(self) -> None:
        self.app.close()


def wait_until(condition: Callable[[], bool]) -> None:
    assert comes_true(condition, PATIENCE_SECONDS), "it did not happen"


def comes_true(condition: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.002)
    return True

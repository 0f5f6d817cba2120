"""The faults: each is a deed that takes a while and is over when it returns.

Those that stop the whole store for a time are windows, in which nothing can be claimed and nobody is to blame.
"""

from __future__ import annotations

import contextlib
import random
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

from .scene import Place, Workers

# By store. Not deeds, but work that the clients add: slow-commit, rude, deaf.
FAULTS = {
    "sqlite": ("read-only", "slow-commit", "kill", "terminate", "kill-child", "rude", "deaf"),
    "postgres": (
        *("read-only", "slow-commit", "lost-answers", "kill", "terminate", "kill-child", "isolation"),
        *("restart", "half-open", "rude", "deaf"),
    ),
    "mongodb": (
        *("read-only", "slow-commit", "lost-answers", "kill", "terminate", "kill-child", "half-open", "rude", "deaf"),
    ),
}
WORK = ("slow-commit", "rude", "deaf")
READ_ONLY_SECONDS = 3.0


class Faults:
    def __init__(self, where: Place, workers: Workers, chosen: set[str], rng: random.Random) -> None:
        self.where, self.workers, self.random = where, workers, rng
        self.done: Counter[str] = Counter()
        self.windows: list[tuple[float, float]] = []
        deeds: dict[str, Callable[[], None]] = {
            "read-only": self.read_only,
            "lost-answers": self.lost_answers,
            "kill": self.workers.kill_one,
            "terminate": self.workers.stop_one,
            "kill-child": self.kill_child,
            "isolation": self.isolation,
            "half-open": self.half_open,
            "restart": self.restart,
        }
        self.deeds = {name: deed for name, deed in deeds.items() if name in chosen}

    def one(self) -> str:
        name = self.random.choice(sorted(self.deeds))
        self.deeds[name]()
        self.done[name] += 1
        return name

    @contextmanager
    def window(self) -> Iterator[None]:
        since = time.monotonic()
        try:
            yield
        finally:
            self.windows.append((since, time.monotonic()))

    # Deeds

    def kill_child(self) -> None:
        self.workers.kill_child()

    def read_only(self) -> None:
        with self.window():
            {"sqlite": self._lock_file, "postgres": self._refuse_writes, "mongodb": self._step_down}[self.where.store]()

    def _lock_file(self) -> None:
        with closing(sqlite3.connect(self.where.direct.removeprefix("sqlite:///"), timeout=30)) as file:
            file.isolation_level = None
            file.execute("BEGIN EXCLUSIVE")
            time.sleep(READ_ONLY_SECONDS)
            file.execute("ROLLBACK")

    def _refuse_writes(self) -> None:
        with self._system("default_transaction_read_only", "on"):
            time.sleep(READ_ONLY_SECONDS)

    def _step_down(self) -> None:
        from pymongo import MongoClient
        from pymongo.errors import PyMongoError

        with MongoClient[Any](self.where.direct) as client:
            with contextlib.suppress(PyMongoError):  # it may close our line as well
                client.admin.command("replSetStepDown", int(READ_ONLY_SECONDS), force=True)
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline:
                with contextlib.suppress(PyMongoError):
                    if client.admin.command("hello")["isWritablePrimary"]:
                        return
                time.sleep(0.1)

    def isolation(self) -> None:
        level = self.random.choice(("repeatable read", "serializable"))
        with self._system("default_transaction_isolation", f"'{level}'"):
            time.sleep(self.random.uniform(3, 6))

    @contextmanager
    def _system(self, setting: str, value: str) -> Iterator[None]:
        """For all sessions, those that are open too."""
        import psycopg

        options = "-c default_transaction_read_only=off -c default_transaction_isolation=read\\ committed"
        with psycopg.connect(self.where.direct, autocommit=True, options=options) as connection:
            connection.execute(f"ALTER SYSTEM SET {setting} = {value}")
            connection.execute("SELECT pg_reload_conf()")
            try:
                yield
            finally:
                connection.execute(f"ALTER SYSTEM RESET {setting}")
                connection.execute("SELECT pg_reload_conf()")

    def lost_answers(self) -> None:
        assert self.where.proxy is not None
        part = self.random.uniform(0.2, 1.0)
        self.where.proxy.lose_answers(lambda line: self.random.random() < part, self.random.uniform(0.05, 0.6))

    def half_open(self) -> None:
        """A line or two that swallow all, for good."""
        assert self.where.proxy is not None
        part = 2 / max(1, len(self.where.proxy.lines))
        self.where.proxy.silence(lambda line: self.random.random() < part)

    def restart(self) -> None:
        """All sessions end, as when the server restarts."""
        import psycopg

        with psycopg.connect(self.where.direct, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
            )

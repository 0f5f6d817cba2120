"""Where it plays: a store of its own, reached through a proxy that can lose answers; workers and clients."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit
from uuid import UUID

import msgspec

from tests.chains.ledger import Ledger
from tests.proxy import Proxy
from windlass import Job, Unique, Windlass
from windlass.embedded import MongodbServer, PostgresServer

from ..history import Event, History
from .work import marker_of

ROOT = Path(__file__).parents[3]
WORKER = {
    "queues": {"default": None, "children": 2},  # a child takes long to start on a machine that is busy
    "concurrency": 8,
    "rescue_interval": 0.5,
    "poll_interval": 1,
    "grace": 4,
}
EXIT_SECONDS = 25.0  # for a worker that was told to stop: its grace, five seconds, and a machine that is busy


class Place(NamedTuple):
    """`url` is the workers' and the clients'; `direct` is past the proxy, for who does harm and who judges."""

    store: str
    url: str
    direct: str
    proxy: Proxy | None


@contextmanager
def place(store: str, folder: Path) -> Iterator[Place]:
    if store == "sqlite":
        url = f"sqlite:///{folder / 'soak.db'}"
        yield Place(store, url, url, None)
        return
    with ExitStack() as stack:
        if store == "postgres":
            # The tests' server has settings for speed; this one is as embedded.py starts it.
            direct = stack.enter_context(PostgresServer()).url
            tail = "/postgres"
        else:
            # A client that dies in a transaction holds its locks for that long.
            settings = {"transactionLifetimeLimitSeconds": "20"}
            direct = stack.enter_context(MongodbServer(settings=settings)).url
            tail = "/soak?directConnection=true&serverSelectionTimeoutMS=20000"
        parts = urlsplit(direct)
        proxy = stack.enter_context(Proxy(parts.hostname or "", parts.port or 0))
        start = f"{parts.scheme}://{'postgres@' if store == 'postgres' else ''}127.0.0.1:"
        yield Place(store, f"{start}{proxy.port}{tail}", f"{start}{parts.port}{tail}", proxy)


def slowness() -> float:
    """How busy the machine is with other things: 1 where it has a core for each that wants one, and for ours."""
    return max(1.0, os.getloadavg()[0] / (2 * (os.cpu_count() or 1)))


class Workers:
    """Processes that are started by the dozen, killed, and told to stop."""

    def __init__(self, url: str, history: Path, rng: random.Random) -> None:
        self.random, self.history, self.pids = rng, history, list[int]()
        self.stopping: dict[int, float] = {}
        self.late: list[float] = []  # seconds that one took to exit, where it took too long
        self.deaths: Counter[str] = Counter()
        environment = os.environ | {"WINDLASS_URL": url, "HISTORY": str(history)}
        self._maker = subprocess.Popen(
            # Not by -m: what a program is started by, its children import as well.
            [sys.executable, "-c", "from tests.faults.soak.workers import serve; serve()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=open(history.parent / "workers.log", "wb"),  # noqa: SIM115
            text=True,
            cwd=ROOT,
            env=environment,
        )

    def start(self, count: int = 1) -> None:
        assert self._maker.stdin is not None
        assert self._maker.stdout is not None
        for _ in range(count):
            self._maker.stdin.write(msgspec.json.encode(WORKER).decode() + "\n")
            self._maker.stdin.flush()
            self.pids.append(int(self._maker.stdout.readline()))

    def replace_dead(self) -> int:
        gone = [pid for pid in self.pids if not is_alive(pid)]
        self.pids = [pid for pid in self.pids if pid not in gone]
        self.start(len(gone))
        # One that has not begun to work may have found the store away, and is started again by whoever watches it.
        return sum(marker_of(self.history, pid).exists() for pid in gone)

    def kill_one(self) -> None:
        pid = self.random.choice(self.pids)
        send(pid, signal.SIGKILL)
        self.pids.remove(pid)
        self.start()

    def stop_one(self) -> None:
        pid = self.random.choice(self.pids)
        self.pids.remove(pid)
        self._stop(pid)
        self.start()

    def _stop(self, pid: int) -> None:
        send(pid, signal.SIGTERM)
        self.stopping[pid] = time.monotonic()

    def look(self) -> None:
        """At those that were told to stop."""
        now = time.monotonic()
        for pid, since in [*self.stopping.items()]:
            if not is_alive(pid):
                del self.stopping[pid]
            elif now - since > EXIT_SECONDS * slowness():
                self.late.append(now - since)
                del self.stopping[pid]
                send(pid, signal.SIGKILL)

    def kill_child(self) -> bool:
        """A child process that runs handlers, of any worker."""
        children = [child for pid in self.pids for child in children_of(pid)]
        children = [child for child in children if marker_of(self.history, child).exists()]
        if children:
            send(self.random.choice(children), signal.SIGKILL)
        return bool(children)

    def stop_all(self) -> None:
        for pid in self.pids:
            self._stop(pid)
        self.pids = []
        while self.stopping:
            self.look()
            time.sleep(0.1)

    def close(self) -> None:
        assert self._maker.stdin is not None
        assert self._maker.stdout is not None
        for pid in (*self.pids, *self.stopping):
            for child in children_of(pid):
                send(child, signal.SIGKILL)
            send(pid, signal.SIGKILL)
        self._maker.stdin.close()
        self._maker.wait(20)
        self._maker.stdout.close()


def send(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def is_alive(pid: int) -> bool:
    try:
        return b") Z " not in Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return False


def children_of(pid: int) -> list[int]:
    """Those that run handlers; not the one that keeps track of shared memory."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, IndexError, ValueError):
            facts = (entry / "stat").read_text().rpartition(")")[2].split()
            if int(facts[1]) == pid and b"spawn_main" in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
    return found


WAITS = -1


class Sent(NamedTuple):
    """What a client has asked for. `line` and `number`: its place among those of one order key."""

    id: UUID
    kind: str
    line: str = ""
    number: int = 0
    length: int = 0  # of the chain; WAITS: for others


class Client:
    """A thread that enqueues, with ids of its own, and keeps a record of what was acknowledged."""

    def __init__(
        self, name: str, url: str, history: History, rng: random.Random, extra: set[str], *, only_plain: bool = False
    ) -> None:
        self.only_plain = only_plain  # which nothing but the store itself can hold up
        self.name, self.history, self.random, self.extra = name, history, rng, extra
        self.app = Windlass(url, make_id=self._make_id)
        self.sent: dict[UUID, Sent] = {}
        self.errors: Counter[str] = Counter()
        self.took: list[tuple[float, float]] = []  # from when to when an enqueue was on its way
        self.stopping = threading.Event()
        self.number = 0
        self._recent: list[Job] = []
        self._slow_at = 0.0
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> bool:
        self.stopping.set()
        self._thread.join(60)
        self.app.close()
        return not self._thread.is_alive()

    def _make_id(self) -> UUID:
        from uuid_utils.compat import uuid7

        id = uuid7()
        self.history.note(Event(kind="sent", id=id))
        return id

    def _run(self) -> None:
        while not self.stopping.is_set():
            try:
                self._recipe()()
            except Exception as error:
                self.errors[type(error).__name__] += 1
            self.stopping.wait(self.random.uniform(0.05, 0.35))

    def _recipe(self) -> Any:
        if self.only_plain:
            return self.random.choice((self._plain, self._last))
        recipes = [self._plain, self._plain, self._last, self._effects, self._chain, self._ordered, self._fan_in]
        recipes += [self._unique, self._child, self._twice]
        if "rude" in self.extra:
            recipes.append(self._rude)
        if "deaf" in self.extra:
            recipes.append(self._deaf)
        if "slow-commit" in self.extra and time.monotonic() > self._slow_at:
            return self._slow
        return self.random.choice(recipes)

    def _send(self, kind: str, given: dict[str, Any], count: int = 1, **about: Any) -> list[Job]:
        options = about.pop("options", {})
        calls = [self.app.call(kind, given, **options) for _ in range(count)]
        since = time.monotonic()
        try:
            jobs = self.app.enqueue_many(calls)
        finally:
            self.took.append((since, time.monotonic()))
        for job in jobs:
            if job.created:
                self.sent[job.id] = Sent(job.id, kind, **about)
        self.history.note(*(Event(kind="acknowledged", id=job.id) for job in jobs))
        return jobs

    def _seconds(self) -> float:
        return round(self.random.uniform(0, 0.2), 3)

    def _plain(self) -> None:
        kind = self.random.choice(("plain", "in_thread"))
        self._recent = self._send(kind, {"seconds": self._seconds()}, self.random.randint(1, 6))

    def _last(self) -> None:
        self._send("last", {"seconds": self._seconds()}, self.random.randint(1, 4))

    def _effects(self) -> None:
        self._send(self.random.choice(("effect", "sync_effect")), {"seconds": self._seconds() / 4})

    def _chain(self) -> None:
        length = self.random.randint(1, 4)
        self._send("link", {"left": length}, length=length + 1)

    def _ordered(self) -> None:
        line = f"{self.name} {self.random.randrange(3)}"
        for _ in range(self.random.randint(1, 3)):
            self._in_line(line)

    def _in_line(self, line: str) -> None:
        self.number += 1
        number = self.number
        self._send("ordered", {"number": number}, line=line, number=number, options={"order_key": line})

    def _fan_in(self) -> None:
        blockers = self._send("plain", {"seconds": self._seconds()}, 2) + self._recent[-2:]
        self._send("plain", {"seconds": 0}, length=WAITS, options={"after": blockers})

    def _unique(self) -> None:
        key = f"unique {self.random.randrange(4)}"
        self._send("plain", {"seconds": self._seconds()}, options={"unique": Unique(key)})

    def _child(self) -> None:
        self._send("in_child", {"seconds": self._seconds()}, options={"queue": "children"})

    def _twice(self) -> None:
        """An id that is sent until it is acknowledged, and again while it runs and when it has run."""
        id = self._make_id()
        for _ in range(20):
            try:
                self._send("effect", {"seconds": 0}, options={"id": id})
                break
            except Exception as error:
                self.errors[type(error).__name__] += 1
                self.stopping.wait(0.3)
        for _ in range(5):
            self.stopping.wait(self.random.uniform(0, 0.05))
            again = self.app.enqueue("effect", {"seconds": 0}, id=id)
            self.history.note(Event(kind="acknowledged", id=again.id))
        self.sent.setdefault(id, Sent(id, "effect"))

    def _slow(self) -> None:
        """A commit that takes its time, and jobs that come meanwhile and have to wait for it."""
        sqlite = self.app.url.startswith("sqlite")  # all others wait for it there: that is how SQLite is
        self._slow_at = time.monotonic() + (6 if sqlite else 15)
        seconds = round(self.random.uniform(0.5, 1.5) if sqlite else self.random.uniform(6, 9), 1)
        line = f"{self.name} slow"
        self.number += 1
        slow = self._send(
            "slow", {"seconds": seconds}, line=line, number=self.number, options={"order_key": line}
        )  # fmt: skip
        self.stopping.wait(1.0)
        self._in_line(line)
        self._send("plain", {"seconds": 0}, length=WAITS, options={"after": slow})

    def _rude(self) -> None:
        self._send("rude", {})

    def _deaf(self) -> None:
        if self.random.random() < 0.3:
            self._send("deaf", {"seconds": 12})


def ledger_of(where: Place) -> Ledger:
    return Ledger(where.direct)


def rows_of(where: Place) -> list[tuple[Any, ...]]:
    """id, state, attempt, max_attempts, token, type, chain_id, chain_index, error, attempts of all jobs there are."""
    columns = (
        "id",
        "state",
        "attempt",
        "max_attempts",
        "token",
        "type",
        "chain_id",
        "chain_index",
        "error",
        "attempts",
    )
    rows: list[Any] = []
    if where.store == "mongodb":
        from pymongo import MongoClient

        from windlass.stores.mongodb.connections import HANDLE

        with MongoClient[Any](where.direct) as client:
            jobs = client.get_default_database().get_collection("windlass_jobs", **HANDLE)
            rows = [(row["_id"], *(row.get(name) for name in columns[1:])) for row in jobs.find({})]
        return [(*row[:6], row[6] or row[0], row[7] or 0, *row[8:]) for row in rows]
    if where.store == "postgres":
        import psycopg

        with psycopg.connect(where.direct) as connection:
            for table in ("jobs", "history"):
                rows += connection.execute(f"SELECT {', '.join(columns)} FROM windlass_{table}").fetchall()
        return rows
    with contextlib.closing(sqlite3.connect(where.direct.removeprefix("sqlite:///"), timeout=30)) as file:
        for table in ("jobs", "history"):
            rows += file.execute(f"SELECT {', '.join(columns)} FROM windlass_{table}").fetchall()
    return rows

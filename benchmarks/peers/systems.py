"""The systems of the comparison: their versions, their programs and their options."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

NODE = "22.23.3"
UVLOOP = "uvloop==0.23.0"


@dataclass(frozen=True)
class PythonPackages:
    """Packages that pip installs into their own virtual environment. The first is the system itself."""

    requirements: tuple[str, ...]
    at_least: tuple[int, int] = (3, 11)


@dataclass(frozen=True)
class NodePackages:
    """Packages that npm installs into their own folder, with a Node that is new enough."""

    requirements: tuple[str, ...]


@dataclass(frozen=True)
class Checkout:
    """Windlass from this checkout, run by this Python, with uvloop, as a user installs it."""

    requirements: tuple[str, ...] = (UVLOOP,)
    commit: str | None = None  # its sources are those of this commit; None: the files as they are


@dataclass(frozen=True)
class System:
    name: str
    title: str
    store: str  # postgres, sqlite
    install: PythonPackages | NodePackages | Checkout
    program: str
    unfinished: str  # SQL that returns a true value while jobs are not completed
    keeps_history: bool
    options: str  # text for the table
    environment: Mapping[str, str] = field(default_factory=dict)
    has_worker: bool = True  # without a worker there is no pick-up to measure
    slow: bool = False  # it gets fewer jobs, because it would take minutes


WINDLASS_UNFINISHED = "SELECT EXISTS (SELECT 1 FROM windlass_jobs)"

POSTGRES = (
    System(
        name="windlass",
        title="Windlass",
        store="postgres",
        install=Checkout(),
        program="with_windlass.py",
        unfinished=WINDLASS_UNFINISHED,
        keeps_history=True,
        options="concurrency 50; history kept for 7 days",
    ),
    System(
        name="windlass-keep-0",
        title="Windlass, keep=0",
        store="postgres",
        install=Checkout(),
        program="with_windlass.py",
        unfinished=WINDLASS_UNFINISHED,
        keeps_history=False,
        options="concurrency 50; nothing kept",
        environment={"WINDLASS_KEEP": "0"},
    ),
    System(
        name="graphile-worker",
        title="Graphile Worker",
        store="postgres",
        install=NodePackages(("graphile-worker@0.18.0", "pg@8.23.1")),
        program="with_graphile_worker.mjs",
        unfinished="SELECT EXISTS (SELECT 1 FROM graphile_worker._private_jobs)",
        keeps_history=False,
        options="local queue 1000, completion batched 5 ms, 24 concurrent jobs, pool of 25; addJobs of 5,000",
    ),
    System(
        name="pg-boss",
        title="pg-boss",
        store="postgres",
        install=NodePackages(("pg-boss@12.35.0", "pg@8.23.1")),
        program="with_pg_boss.mjs",
        unfinished="SELECT EXISTS (SELECT 1 FROM pgboss.job WHERE state < 'completed')",
        keeps_history=True,
        options="batches of 500 × 4 workers, burstWhenBatchFull, LISTEN/NOTIFY; insert of 5,000",
    ),
    System(
        name="pgqueuer",
        title="PgQueuer",
        store="postgres",
        install=PythonPackages(("pgqueuer==1.6.0", "asyncpg==0.32.0", UVLOOP)),
        program="with_pgqueuer.py",
        unfinished="SELECT EXISTS (SELECT 1 FROM pgqueuer)",
        keeps_history=True,
        options="asyncpg pool of 4, batches of 500, uvloop; enqueue of 5,000",
    ),
    System(
        name="oban",
        title="Oban (Python)",
        store="postgres",
        install=PythonPackages(("oban==0.7.0", "psycopg[binary,pool]==3.3.8", UVLOOP), at_least=(3, 12)),
        program="with_oban.py",
        unfinished="SELECT EXISTS (SELECT 1 FROM oban_jobs WHERE state <> 'completed')",
        keeps_history=True,
        options="limit 100, pool of 10, uvloop; enqueue_many of 1,000",
        slow=True,
    ),
    System(
        name="procrastinate",
        title="Procrastinate",
        store="postgres",
        install=PythonPackages(("procrastinate==3.10.0", "psycopg[binary,pool]==3.3.8", UVLOOP)),
        program="with_procrastinate.py",
        unfinished="SELECT EXISTS (SELECT 1 FROM procrastinate_jobs WHERE status IN ('todo', 'doing'))",
        keeps_history=True,
        options="concurrency 20, pool of 20, uvloop; batch_defer of 5,000",
        slow=True,
    ),
)

HUEY = PythonPackages(("huey==3.5.4",))
LITEQUEUE = PythonPackages(("litequeue==0.9",))
HUEY_UNFINISHED = "SELECT EXISTS (SELECT 1 FROM task)"
LITEQUEUE_UNFINISHED = "SELECT EXISTS (SELECT 1 FROM Queue WHERE status < 2)"

SQLITE = (
    System(
        name="sqlite-windlass",
        title="Windlass, rollback journal",
        store="sqlite",
        install=Checkout(),
        program="with_windlass.py",
        unfinished=WINDLASS_UNFINISHED,
        keeps_history=True,
        options="journal_mode=delete, synchronous=FULL (its default where SQLite's WAL is not safe)",
        environment={"WINDLASS_JOURNAL": "delete"},
    ),
    System(
        name="sqlite-windlass-wal",
        title="Windlass, WAL",
        store="sqlite",
        install=Checkout(),
        program="with_windlass.py",
        unfinished=WINDLASS_UNFINISHED,
        keeps_history=True,
        options="journal_mode=wal, synchronous=FULL",
        environment={"WINDLASS_JOURNAL": "wal"},
    ),
    System(
        name="huey",
        title="huey (SqliteHuey)",
        store="sqlite",
        install=HUEY,
        program="with_huey.py",
        unfinished=HUEY_UNFINISHED,
        keeps_history=False,
        options="its defaults (WAL, synchronous=FULL), one worker thread, polls every 10 ms; no bulk call",
        slow=True,
    ),
    System(
        name="huey-rollback",
        title="huey, rollback journal",
        store="sqlite",
        install=HUEY,
        program="with_huey.py",
        unfinished=HUEY_UNFINISHED,
        keeps_history=False,
        options="journal_mode=delete, synchronous=FULL",
        environment={"HUEY_OPTIONS": '{"journal_mode": "delete", "fsync": true}'},
        slow=True,
    ),
    System(
        name="litequeue",
        title="litequeue",
        store="sqlite",
        install=LITEQUEUE,
        program="with_litequeue.py",
        unfinished=LITEQUEUE_UNFINISHED,
        keeps_history=True,
        options="its defaults (WAL, synchronous=NORMAL: a commit is not yet on the disk); puts in one transaction",
        has_worker=False,
        slow=True,
    ),
    System(
        name="litequeue-rollback",
        title="litequeue, rollback journal",
        store="sqlite",
        install=LITEQUEUE,
        program="with_litequeue.py",
        unfinished=LITEQUEUE_UNFINISHED,
        keeps_history=True,
        options="journal_mode=delete, synchronous=FULL",
        environment={"LITEQUEUE_PRAGMAS": "journal_mode=delete;synchronous=full"},
        has_worker=False,
        slow=True,
    ),
)

SYSTEMS = {system.name: system for system in (*POSTGRES, *SQLITE)}

BEFORE = ("windlass-before", "windlass-before-keep-0")


def systems_before(commit: str) -> dict[str, System]:
    """Windlass as it was in an earlier commit, by name: the same programs and options, other sources."""
    pairs = zip(BEFORE, (SYSTEMS["windlass"], SYSTEMS["windlass-keep-0"]), strict=True)
    return {
        name: replace(now, name=name, title=f"{now.title}, before", install=Checkout(commit=commit))
        for name, now in pairs
    }


def version_of(system: System) -> str:
    """The pinned version, and the version of the Python or Node that runs it."""
    if isinstance(system.install, Checkout):
        sources = f"commit {system.install.commit[:9]}" if system.install.commit else "this checkout"
        return f"{sources}, Python {sys.version_info.major}.{sys.version_info.minor}"
    main = system.install.requirements[0]
    if isinstance(system.install, NodePackages):
        return f"{main.rpartition('@')[2]}, Node {NODE}"
    return main.rpartition("==")[2]

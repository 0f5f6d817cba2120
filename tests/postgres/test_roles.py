"""The statements of docs/how-to/restrict-postgresql-roles.md: each role does its work, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import psycopg
import pytest

from windlass import Attempt, Continue, Job, Unique, Windlass, WindlassError

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "restrict-postgresql-roles.md"
BLOCKS = dict(re.findall(r"^```sql ([^\n]+)\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL))


class Database:
    """The owner's tables, and the page's roles under names of their own, since roles belong to the whole server."""

    def __init__(self, url: str) -> None:
        self.url, self.mark = url, f"r{uuid4().hex[:8]}"
        self.superuser = psycopg.connect(url, autocommit=True)
        self.roles: list[str] = []
        self.apps: list[Windlass] = []

    def run(self, title: str) -> None:
        """The statements of one block of the page."""
        text = self.named(BLOCKS[title])
        self.roles += re.findall(r"CREATE ROLE (\w+)", text)
        self.superuser.execute(text)

    def named(self, text: str) -> str:
        return re.sub(r"\bjobs_(owner|worker|enqueuer|reader)\b", rf"{self.mark}_\1", text)

    def url_of(self, role: str) -> str:
        parts = urlsplit(self.url)
        return parts._replace(netloc=f"{self.mark}_{role}@{parts.hostname}:{parts.port}").geturl()

    def app(self, role: str, **options: Any) -> Windlass:
        self.apps.append(Windlass(self.url_of(role), **({"auto_migrate": False} | options)))
        return self.apps[-1]

    def close(self) -> None:
        for app in self.apps:
            app.close()
        for role in reversed(self.roles):
            self.superuser.execute(f"DROP OWNED BY {role} CASCADE; DROP ROLE {role}")
        self.superuser.close()


@pytest.fixture
def database(fresh_postgres_url: str) -> Iterator[Database]:
    database = Database(fresh_postgres_url)
    try:
        database.run("owner")
        database.app("owner", auto_migrate=True).migrate()
        for title in ("worker", "enqueuer", "reader"):
            database.run(title)
        yield database
    finally:
        database.close()


def is_denied(action: Callable[[], object]) -> None:
    with pytest.raises((psycopg.errors.InsufficientPrivilege, WindlassError), match="permission denied"):
        action()


# The worker


def add_tasks(app: Windlass) -> list[str]:
    """Of all kinds, on an app that is a worker's; what they have done."""
    done: list[str] = []

    @app.task
    def plain(n: int) -> int:
        done.append(f"plain {n}")
        return n

    @app.task(max_attempts=2, backoff=0)
    def fails(attempt: Attempt) -> None:
        done.append(f"fails {attempt.number}")
        raise ValueError("no")

    @app.task
    def begins() -> Continue:
        return Continue(plain.call(7))

    @app.task
    def remembers(attempt: Attempt, content: str) -> None:
        with attempt.transaction() as connection:
            connection.execute("INSERT INTO memories VALUES (%s, %s)", [attempt.job.tenant, content])
            seen = connection.execute("SELECT tenant, content FROM memories").fetchall()
            done.append(f"{attempt.job.tenant} sees {seen}")
            plain.enqueue(8)

    return done


def work(app: Windlass) -> None:
    app.run_worker(until_idle=True, concurrency=4, poll_interval=0.2)


def test_a_worker_does_all_its_work_as_a_role_that_may_do_only_that(database: Database) -> None:
    database.run("your tables")
    database.run("enqueuer with blockers")
    worker, enqueuer = database.app("worker"), database.app("enqueuer")
    done = add_tasks(worker)
    first = enqueuer.enqueue("plain", {"n": 1})
    enqueuer.enqueue("plain", {"n": 2}, after=[first])
    for n in (3, 4, 5):
        enqueuer.enqueue("plain", {"n": n}, order_key="line")
    enqueuer.enqueue("fails")
    enqueuer.enqueue("begins")
    for tenant in ("acme", "other"):
        enqueuer.enqueue("remembers", {"content": tenant.upper()}, tenant=tenant)
    worker.schedule("0 * * * *", worker.call("plain", {"n": 6}), name="each hour")
    late = worker.enqueue("plain", {"n": 9}, expires="110s", delay="1h")
    worker.enqueue("plain", {"n": 10}, unique=Unique("once", until="1h"))
    work(worker)
    assert sorted(text for text in done if text.startswith("plain")) == [
        *("plain 1", "plain 10", "plain 2", "plain 3", "plain 4", "plain 5", "plain 7", "plain 8", "plain 8")
    ]
    assert [text for text in done if text[-1] in "345" and "plain" in text] == ["plain 3", "plain 4", "plain 5"]
    assert [text for text in done if text.startswith("fails")] == ["fails 1", "fails 2"]
    assert sorted(text for text in done if "sees" in text) == [
        "acme sees [('acme', 'ACME')]",
        "other sees [('other', 'OTHER')]",
    ]
    rescue_and_forget(worker, late)


def rescue_and_forget(worker: Windlass, late: Job) -> None:
    """What a worker does beside its jobs."""
    worker.enqueue("plain", {"n": 11})
    (lost,) = worker.claim(1)
    worker.store.clock.move(timedelta(minutes=2))
    assert worker.rescue() == 1
    assert worker.expire() == 1
    assert late.refresh().state == "cancelled"
    (failed,) = worker.list(state="failed")
    assert worker.retry_many(type="fails") == 1
    assert worker.cancel(failed.id).state == "cancelled"
    worker.pause("default")
    worker.resume("default")
    worker.delete(lost.job.id)
    worker.store.clock.move(timedelta(days=40))  # whole days of the history go by TRUNCATE
    assert worker.prune() > 0
    assert worker.counts().total == 0
    worker.delete_schedule("each hour")
    assert worker.schedules() == []
    assert worker.workers() == []


def test_a_worker_can_do_nothing_else(database: Database) -> None:
    database.superuser.execute("CREATE TABLE secrets (of text)")
    with psycopg.connect(database.url_of("worker"), autocommit=True) as connection:
        for statement in (
            "SELECT * FROM secrets",
            "CREATE TABLE mine (n int)",
            "TRUNCATE windlass_jobs",
            "TRUNCATE windlass_history",
            "UPDATE windlass_migrations SET version = 1",
            "INSERT INTO windlass_history_0 SELECT * FROM windlass_history_0",
            "DELETE FROM windlass_history_0",
            "SELECT setval('windlass_seq', 1)",
        ):
            is_denied(lambda statement=statement: connection.execute(statement))  # type: ignore[misc]
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="must be owner"):
            connection.execute("ALTER TABLE windlass_jobs ADD COLUMN mine int")


# Who only enqueues


def every_kind(app: Windlass) -> list[Job]:
    first = app.enqueue("t", {"secret": 1}, delay="1h", priority=5, expires="2h", labels={"a": "b"}, tenant="acme")
    jobs = [first, app.enqueue("t", {}, order_key="key", tenant="acme")]
    jobs += app.enqueue_many(app.call("t", {"n": n}, tenant="acme") for n in range(3))
    jobs += app.enqueue_many(app.call("t", {"n": n}, tenant="acme") for n in range(500))  # by COPY, where it can
    return jobs


def test_who_only_enqueues_can_do_that_in_all_ways_and_nothing_else(database: Database) -> None:
    app = database.app("enqueuer")
    jobs = every_kind(app)
    with psycopg.connect(database.url_of("enqueuer")) as own:
        jobs.append(app.enqueue("t", {}, connection=own))
        own.rollback()
        jobs[-1] = app.enqueue("t", {}, connection=own)
    assert database.app("reader").counts().total == len(jobs) == 506
    id = jobs[0].id
    for action in (
        lambda: app.claim(1),
        lambda: app.get(id),
        app.list,
        app.counts,
        lambda: app.cancel(id),
        lambda: app.delete(id),
        lambda: app.run_now(id),
        lambda: app.complete(id),
        lambda: app.pause("default"),
        app.rescue,
        app.prune,
        app.workers,
        lambda: [app.enqueue("t", {}, unique="key", tenant="twice") for _ in range(2)],
        lambda: app.enqueue("t", {}, id=uuid4()),
        lambda: app.enqueue("t", {}, after=[id]),
    ):
        is_denied(action)
    with psycopg.connect(database.url_of("enqueuer"), autocommit=True) as connection:
        for statement in (
            "SELECT input FROM windlass_jobs",
            "SELECT * FROM windlass_history",
            "SELECT output FROM windlass_history",
            "UPDATE windlass_jobs SET attempt = 0",
            "DELETE FROM windlass_jobs",
            "SELECT * FROM windlass_workers",
            "INSERT INTO windlass_history SELECT * FROM windlass_history",
            "SELECT id FROM windlass_jobs FOR UPDATE",
            "SELECT output FROM windlass_edges",
        ):
            is_denied(lambda statement=statement: connection.execute(statement))  # type: ignore[misc]
    assert database.app("reader").counts().total == 507  # the first of that key


def test_blockers_need_to_find_chains_and_reveal_no_results(database: Database) -> None:
    database.run("enqueuer with blockers")
    app = database.app("enqueuer")
    first = app.enqueue("t", {})
    next_one = app.enqueue("t", {}, after=[first])
    both = app.enqueue_many([app.call("t", {}, after=[first, next_one]), app.call("t", {}, after=[next_one])])
    assert {job.state for job in (next_one, *both)} == {"blocked"}
    is_denied(lambda: app.get(first.id))
    is_denied(lambda: app.claim(1))
    with psycopg.connect(database.url_of("enqueuer"), autocommit=True) as connection:
        for statement in (
            "SELECT output FROM windlass_edges",
            "SELECT input FROM windlass_jobs",
            "DELETE FROM windlass_edges",
            "UPDATE windlass_jobs SET state = 'pending'",
        ):
            is_denied(lambda statement=statement: connection.execute(statement))  # type: ignore[misc]
    worker = database.app("worker")

    @worker.task
    def t() -> None: ...

    work(worker)
    assert worker.counts().completed == 4


def test_keys_need_to_read(database: Database) -> None:
    database.run("enqueuer with keys")
    app = database.app("enqueuer")
    for unique in (Unique("a"), Unique("b", until="forever"), Unique("c", until="1h"), Unique("d", until="claimed")):
        first = app.enqueue("t", {}, unique=unique)
        assert app.enqueue("t", {}, unique=unique) == first
        assert [job.id for job in app.list(unique=unique.key)] == [first.id]
    id = uuid4()
    is_denied(lambda: app.enqueue("t", {}, id=id))
    for action in (
        lambda: app.claim(1),
        first.cancel,
        first.delete,
        lambda: app.enqueue("t", {}, unique=Unique("d", until="claimed", on_conflict="replace")),
    ):
        is_denied(action)
    database.superuser.execute(database.named("GRANT DELETE ON windlass_jobs TO jobs_enqueuer"))
    assert app.enqueue("t", {}, id=id).created
    assert not app.enqueue("t", {}, id=id).created
    database.superuser.execute(database.named("GRANT UPDATE ON windlass_jobs TO jobs_enqueuer"))
    replaced = app.enqueue("t", {"n": 2}, unique=Unique("d", until="claimed", on_conflict="replace"))
    assert (replaced.created, replaced.input) == (False, {"n": 2})


# Who only looks


def test_who_only_looks_can_write_nothing(database: Database) -> None:
    (job, *_) = every_kind(database.app("enqueuer"))
    app = database.app("reader")
    assert app.counts().total == 505
    assert app.get(job.id) == job
    assert len(app.list(limit=1000)) == 505
    assert (app.workers(), app.paused(), app.schedules()) == ([], [], [])
    assert app.explain(job.id)
    for action in (
        lambda: app.enqueue("t"),
        lambda: app.enqueue_many(app.call("t") for _ in range(500)),
        lambda: app.claim(1),
        lambda: app.cancel(job.id),
        lambda: app.delete(job.id),
        lambda: app.run_now(job.id),
        lambda: app.pause("default"),
        app.rescue,
        app.prune,
    ):
        is_denied(action)


def test_no_role_but_the_owner_changes_the_schema(database: Database) -> None:
    newest = "SELECT max(version) FROM windlass_migrations"
    database.superuser.execute(f"DELETE FROM windlass_migrations WHERE version = ({newest})")
    for role in ("worker", "enqueuer", "reader"):
        with pytest.raises(WindlassError, match="migrate"):
            database.app(role).enqueue("t")


# Row security on the queue


def test_who_enqueues_for_a_tenant_sees_the_jobs_of_that_one_alone(database: Database) -> None:
    database.run("enqueuer with keys")
    database.run("enqueuer with blockers")
    database.run("row security")
    for tenant in ("acme", "other"):
        role = f"{database.mark}_{tenant}"
        database.roles.append(role)
        member = database.named(f"CREATE ROLE {role} LOGIN IN ROLE jobs_enqueuer")
        database.superuser.execute(f"{member}; ALTER ROLE {role} SET windlass.tenant = '{tenant}'")
    acme, other = database.app("acme"), database.app("other")
    jobs = every_kind(acme)
    jobs.append(acme.enqueue("t", {}, after=[jobs[0]], tenant="acme"))
    jobs.append(acme.enqueue("t", {}, unique=Unique("key", until="forever"), tenant="acme"))
    assert acme.enqueue("t", {}, unique=Unique("key", until="forever"), tenant="acme") == jobs[-1]
    assert other.enqueue("t", {}, unique=Unique("key", until="forever"), tenant="other").created
    assert len(acme.list(limit=1000)) == len(jobs) == 507
    assert len(other.list()) == 1
    assert other.get(jobs[0].id) is None
    refused: list[dict[str, Any]] = [{"tenant": "other"}, {}, {"tenant": "other", "order_key": "key"}]
    for options in refused:
        with pytest.raises((psycopg.errors.InsufficientPrivilege, WindlassError), match="row-level security"):
            acme.enqueue("t", {}, **options)
    with pytest.raises((psycopg.errors.InsufficientPrivilege, WindlassError), match="row-level security"):
        acme.enqueue_many(acme.call("t", {"n": n}, tenant="other") for n in range(500))
    with pytest.raises(WindlassError):
        other.enqueue("t", {}, after=[jobs[0]], tenant="other")
    database.superuser.execute(database.named("GRANT DELETE ON windlass_jobs TO jobs_enqueuer"))
    with pytest.raises(WindlassError, match="cannot be seen"):
        other.enqueue("t", {}, id=jobs[0].id, tenant="other")
    workers_see_all(database)


def workers_see_all(database: Database) -> None:
    worker = database.app("worker")

    @worker.task
    def t(**_: Any) -> None: ...

    assert len(worker.list(limit=1000)) == 508
    worker.run_now_many(tenant="acme")
    work(worker)
    counts = worker.counts()
    assert (counts.completed, counts.total) == (508, 508)
    assert len(database.app("other").list()) == 1
    assert database.app("reader").counts().total == 508
    worker.store.clock.move(timedelta(days=40))
    assert worker.prune() > 0
    assert worker.counts().total == 0


def test_a_transaction_of_its_own_says_for_whom_it_enqueues(database: Database) -> None:
    database.run("row security")
    app = database.app("enqueuer")
    with psycopg.connect(database.url_of("enqueuer")) as own:
        own.execute("SELECT set_config('windlass.tenant', 'acme', true)")
        job = app.enqueue("t", {}, tenant="acme", connection=own)
    (found,) = database.app("reader").list()
    assert (found.id, found.tenant) == (job.id, "acme")
    with psycopg.connect(database.url_of("enqueuer")) as own:
        with pytest.raises((psycopg.errors.InsufficientPrivilege, WindlassError), match="row-level security"):
            app.enqueue("t", {}, tenant="acme", connection=own)
        own.rollback()

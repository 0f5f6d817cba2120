"""`app.on("enqueued")`: the app that enqueues tells of it, after the commit."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker
from sqlalchemy.pool import NullPool

from tests.api.program import run
from tests.caller_transactions.alchemy import engine_url
from windlass import Attempt, Unique, Windlass


class Heard:
    def __init__(self, app: Windlass) -> None:
        self.events: queue.SimpleQueue[Any] = queue.SimpleQueue()
        app.on("enqueued")(self.events.put)

    def next(self) -> Any:
        return self.events.get(timeout=20)

    def nothing(self, app: Windlass) -> bool:
        """What has been sent is heard before the app is closed."""
        app.close()
        return self.events.empty()


@pytest.fixture
def heard(app: Windlass) -> Heard:
    return Heard(app)


def plain(app: Windlass) -> Any:
    @app.task
    def plain(n: int = 0) -> int:
        return n

    return plain


def test_the_hook_hears_of_each_job_that_is_created(app: Windlass, heard: Heard) -> None:
    task = plain(app)
    job = task.enqueue(1)
    event = heard.next()
    assert (event.name, event.id, event.job) == ("enqueued", job.id, job)
    assert app.get(event.id) == job
    jobs = app.enqueue_many([task.call(2), task.call(3)])
    assert [heard.next().job for _ in jobs] == jobs
    named = app.enqueue("unknown", {})
    assert heard.next().job == named


async def test_the_async_twins_tell_too(app: Windlass, heard: Heard) -> None:
    job = await plain(app).aenqueue(1)
    assert heard.next().job == job
    await app.aclose()


def test_a_job_that_was_there_already_is_not_enqueued_again(app: Windlass, heard: Heard) -> None:
    task = plain(app).using(unique="key")
    first = task.enqueue()
    assert not task.enqueue().created
    debounced = plain_replaced(app)
    assert heard.next().job == first
    assert heard.next().job == debounced
    assert heard.nothing(app)


def plain_replaced(app: Windlass) -> Any:
    replace = app.tasks["plain"].using(unique=Unique("other", until="claimed", on_conflict="replace"))
    first = replace.enqueue()
    replace.enqueue()
    return first


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("explicitly", [False, True])
def test_the_hook_hears_of_a_block_after_its_commit(app: Windlass, is_async: bool, explicitly: bool) -> None:
    task, heard, before = plain(app), Heard(app), []

    @app.task(max_attempts=2, backoff=0)
    def in_thread(attempt: Attempt) -> None:
        with attempt.transaction() as connection:
            (task.using(connection=connection) if explicitly else task).enqueue(attempt.number)
            before.append(len(list(drain(heard))))
            if attempt.number == 1:
                raise RuntimeError("rolled back")

    @app.task(max_attempts=2, backoff=0)
    async def in_loop(attempt: Attempt) -> None:
        async with attempt.transaction() as connection:
            await (task.using(connection=connection) if explicitly else task).aenqueue(attempt.number)
            before.append(len(list(drain(heard))))
            if attempt.number == 1:
                raise RuntimeError("rolled back")

    job = (in_loop if is_async else in_thread).enqueue()
    assert heard.next().job == job
    app.run_worker(until_idle=True)
    event = heard.next()
    assert (event.job.type, event.job.input) == ("plain", {"n": 2})
    assert before == [0, 0]
    assert heard.nothing(app)


def drain(heard: Heard) -> Iterator[Any]:
    while not heard.events.empty():
        yield heard.events.get()


@pytest.fixture(params=["sqlite", "postgres"])
def sql_url(request: pytest.FixtureRequest) -> str:
    url: str = request.getfixturevalue(f"fresh_{request.param}_url")
    return url


def drivers(url: str) -> tuple[str, str]:
    if url.startswith("sqlite"):
        return engine_url(url, "pysqlite"), engine_url(url, "aiosqlite")
    return engine_url(url, "psycopg"), engine_url(url, "asyncpg")


@pytest.mark.parametrize("scoped", [False, True])
def test_a_session_tells_when_it_has_committed_and_only_then(sql_url: str, scoped: bool) -> None:
    app = Windlass(sql_url)
    app.migrate()
    task, heard = plain(app), Heard(app)
    engine = create_engine(drivers(sql_url)[0], poolclass=NullPool)
    session: Any = scoped_session(sessionmaker(engine)) if scoped else Session(engine)
    enqueue = task.using(connection=session).enqueue
    enqueue(1)
    session.rollback()
    enqueue(2)
    session.close()
    enqueue(3)
    assert heard.events.empty()
    session.commit()
    assert heard.next().job.input == {"n": 3}
    session.commit()
    enqueue(4)
    session.commit()
    assert heard.next().job.input == {"n": 4}
    session.close()
    assert heard.nothing(app)
    engine.dispose()


def test_a_savepoint_that_is_rolled_back_takes_its_events_with_it(fresh_postgres_url: str) -> None:
    app = Windlass(fresh_postgres_url)
    app.migrate()
    task, heard = plain(app), Heard(app)
    engine = create_engine(drivers(fresh_postgres_url)[0], poolclass=NullPool)
    with Session(engine) as session:
        enqueue = task.using(connection=session).enqueue
        enqueue(1)
        undone = session.begin_nested()
        enqueue(2)
        with session.begin_nested():
            enqueue(3)
        undone.rollback()
        with session.begin_nested():
            enqueue(4)
        assert heard.events.empty()
        session.commit()
        with session.begin_nested():
            enqueue(5)
        session.rollback()
    assert sorted(heard.next().job.input["n"] for _ in range(2)) == [1, 4]
    assert sorted(job.input["n"] for job in app.list()) == [1, 4]
    assert heard.nothing(app)
    engine.dispose()


async def test_an_async_session_tells_too(sql_url: str) -> None:
    app = Windlass(sql_url)
    await app.amigrate()
    task, heard = plain(app), Heard(app)
    engine = create_async_engine(drivers(sql_url)[1], poolclass=NullPool)
    async with AsyncSession(engine) as session:
        await task.using(connection=session).aenqueue(1)
        await session.rollback()
        await task.using(connection=session).aenqueue(2)
        assert heard.events.empty()
        await session.commit()
    assert heard.next().job.input == {"n": 2}
    await app.aclose()
    assert heard.events.empty()
    await engine.dispose()


def test_the_hook_hears_nothing_of_a_connection_that_hides_its_commit(sql_url: str) -> None:
    app = Windlass(sql_url)
    app.migrate()
    task, heard = plain(app), Heard(app)
    engine = create_engine(drivers(sql_url)[0], poolclass=NullPool)
    with engine.connect() as connection:
        task.using(connection=connection).enqueue(1)
        connection.commit()
    assert len(app.list()) == 1
    assert heard.nothing(app)
    engine.dispose()


async def test_the_jobs_of_a_schedule_are_told_by_the_worker_that_makes_them(app: Windlass) -> None:
    heard = Heard(app)

    @app.schedule("@every 1s")
    @app.task
    async def tick() -> None: ...

    async with app.worker(poll_interval=timedelta(seconds=0.2)):
        event = await asyncio.to_thread(heard.next)
    assert (event.name, event.job.type) == ("enqueued", "tick")
    await app.aclose()


def test_a_hook_that_fails_stops_nothing_else(app: Windlass) -> None:
    @app.on("enqueued")
    def broken(event: Any) -> None:
        raise RuntimeError("broken")

    heard, task = Heard(app), plain(app)
    jobs = [task.enqueue(n) for n in range(3)]
    assert [heard.next().job for _ in jobs] == jobs


def test_many_threads_are_told_by_one(app: Windlass) -> None:
    task, names = plain(app), set()
    heard = Heard(app)
    app.on("enqueued")(lambda event: names.add(threading.current_thread().ident))
    threads = [threading.Thread(target=task.enqueue, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(heard.next().job.input["n"] for _ in threads) == list(range(8))
    app.close()
    assert len(names) == 1
    task.enqueue(9)
    assert heard.next().job.input == {"n": 9}


def test_a_program_that_ends_at_once_is_heard(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        "import time\nfrom windlass import Windlass\napp = Windlass('sqlite:///jobs.db')\n"
        "@app.on('enqueued')\ndef hear(event):\n    time.sleep(0.3)\n    print(event.name, event.job.type)\n"
        "app.enqueue('one', {})\napp.enqueue('two', {})\n"
    )
    done = run("program.py", folder=tmp_path)
    assert (done.stdout, done.stderr) == ("enqueued one\nenqueued two\n", "")


def test_a_forked_process_tells_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        "import os\nfrom windlass import Windlass\napp = Windlass('sqlite:///jobs.db')\n"
        "@app.on('enqueued')\ndef hear(event):\n    print(event.job.type, flush=True)\n"
        "app.enqueue('parent', {})\napp.close()\n"
        "if (pid := os.fork()) == 0:\n    app.enqueue('child', {})\n    app.close()\n    os._exit(0)\n"
        "os.waitpid(pid, 0)\n"
    )
    done = run("program.py", folder=tmp_path)
    assert (done.stdout, done.stderr) == ("parent\nchild\n", "")


def test_other_hooks_hear_nothing_of_it(new_app: Callable[..., Windlass]) -> None:
    app, heard = new_app(), queue.SimpleQueue[Any]()
    app.on("completed")(heard.put)
    plain(app).enqueue()
    app.close()
    assert heard.empty()

"""What is refused because it cannot be meant: acting on all by leaving the filter out, a name that is no task's, a
blocked job that is to run now, and a wait that stops the loop that it waits for."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.api.either import Either
from windlass import Attempt, Conflict, InvalidInput, StoreUnavailable, Unique, UnknownTask, Windlass, WindlassError
from windlass.cli import main

JOBS = """
from windlass import Windlass

app = Windlass("sqlite:///jobs.db")

@app.task
def send_welcome(name: str = "Ada") -> None: ...
"""


async def test_run_now_of_a_blocked_job_is_a_conflict(app: Windlass, either: Either) -> None:
    first = await either.enqueue("first", {}, delay="1h")
    second = await either.enqueue("second", {}, after=[first], delay="1h")
    with pytest.raises(Conflict, match="blocked job cannot be run now"):
        await either.run_now(second.id)
    assert (await either.get(second.id)).run_at == second.run_at
    assert await either.run_now_many(type="second") == 0
    assert await either.run_now_many(type="second", state="blocked") == 0
    assert (await either.get(second.id)).run_at == second.run_at
    assert await either.run_now_many(type="first") == 1


async def test_to_act_on_all_is_said_by_all(app: Windlass, either: Either) -> None:
    await either.enqueue_many([app.call("send", {}, delay="1h") for _ in range(3)])
    for act in (either.cancel_many, either.retry_many, either.run_now_many, either.delete_many):
        for nothing in ({}, {"queue": None, "state": None}, {"all": False}):
            with pytest.raises(InvalidInput, match="all=True"):
                await act(**nothing)
    assert (await either.counts()).pending == 3
    assert await either.run_now_many(all=True) == 3
    assert await either.cancel_many(all=True) == 3
    assert await either.retry_many(all=True) == 0
    assert await either.retry_many(state="cancelled") == 3
    assert await either.delete_many(all=True) == 3


async def test_all_goes_with_no_filter(app: Windlass, either: Either) -> None:
    await either.enqueue("send", {})
    for act in (either.cancel_many, either.retry_many, either.run_now_many, either.delete_many):
        with pytest.raises(InvalidInput, match="not both"):
            await act(all=True, queue="mail")
        with pytest.raises(InvalidInput, match="all is True or False"):
            await act(all="yes")
    assert (await either.counts()).pending == 1


async def test_a_strict_enqueue_of_a_name_that_is_no_task_names_the_nearest(app: Windlass, either: Either) -> None:
    @app.task
    def send_welcome() -> None: ...

    with pytest.raises(UnknownTask, match=r"send_welcom'.*send_welcome"):
        await either.enqueue("send_welcom", {}, strict=True)
    with pytest.raises(UnknownTask, match="send_welcome"):
        app.call("send_welcom", strict=True)
    with pytest.raises(UnknownTask) as caught:
        await either.enqueue("zzz", strict=True)
    assert "mean" not in str(caught.value)
    assert (await either.counts()).total == 0
    assert (await either.enqueue("send_welcome", {}, strict=True)).type == "send_welcome"
    assert (await either.enqueue("send_welcom", {})).type == "send_welcom"
    assert app.call("elsewhere", strict=False).type == "elsewhere"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "some_jobs.py").write_text(JOBS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path[:])
    monkeypatch.delitem(sys.modules, "some_jobs", raising=False)
    return tmp_path


def shell(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


def test_the_shell_refuses_a_name_that_no_task_of_the_app_has(folder: Path) -> None:
    refused = shell("enqueue", "some_jobs:app", "send_welcom", "{}")
    assert (refused.exit_code, "send_welcome" in refused.output) == (2, True)
    assert "--unknown" in refused.output
    passed = shell("enqueue", "some_jobs:app", "send_welcom", "{}", "--unknown")
    assert passed.exit_code == 0, passed.output
    assert shell("enqueue", "some_jobs:app", "send_welcome").exit_code == 0
    by_url = shell("enqueue", "--url", f"sqlite:///{folder / 'jobs.db'}", "anything")
    assert by_url.exit_code == 0, by_url.output
    app = Windlass(f"sqlite:///{folder / 'jobs.db'}")
    assert sorted(job.type for job in app.list()) == ["anything", "send_welcom", "send_welcome"]
    app.close()


async def test_a_result_is_not_waited_for_in_a_thread_that_runs_a_loop(app: Windlass) -> None:
    job = await app.aenqueue("send", {})
    for wait in (
        lambda: job.result(timeout=5),
        lambda: app.result(job, timeout=5),
        lambda: app.results([job.id], timeout=5),
    ):
        with pytest.raises(WindlassError, match=r"aresult\(\)"):
            wait()
    await app.acomplete(job.id, "done")
    assert await job.aresult() == "done"


def test_in_a_thread_without_a_loop_it_is(app: Windlass) -> None:
    job = app.enqueue("send", {})
    app.complete(job.id, "done")
    assert job.result() == "done"


async def test_a_task_that_takes_an_attempt_can_be_called_as_a_function(app: Windlass) -> None:
    @app.task
    async def add(attempt: Attempt, a: int, b: int = 2) -> list[int]:
        attempt.progress(0.5, "halfway")
        attempt.log("added")
        return [a + b, attempt.number]

    @app.task
    def last(a: int, *, attempt: Attempt, **more: int) -> tuple[int, int, str, list[object], bool]:
        return a, more["b"], attempt.tenant, attempt.blockers, attempt.cancel_requested

    assert await add(1) == [3, 1]
    assert await add(1, b=5) == [6, 1]
    assert last(1, b=2) == (1, 2, "", [], False)
    with pytest.raises(TypeError, match="a"):
        await add()  # type: ignore[call-arg]


def test_an_attempt_that_was_given_is_passed_on(app: Windlass) -> None:
    @app.task
    def number(attempt: Attempt, a: int) -> int:
        return attempt.number + a

    number.enqueue(1)
    number.enqueue(1)
    (attempt, _) = app.claim()
    attempt.retry("again", after=0)
    (second,) = app.claim()
    assert number(second, 5) == 7  # type: ignore[arg-type, call-arg]
    assert number(attempt=second, a=5) == 7  # type: ignore[call-arg]


async def test_an_attempt_without_a_job_says_so(app: Windlass) -> None:
    seen: list[Attempt] = []

    @app.task
    def keep(attempt: Attempt) -> None:
        seen.append(attempt)

    keep()
    (attempt,) = seen
    assert "no job" in repr(attempt)
    for use in (
        lambda: attempt.job,
        attempt.transaction,
        attempt.complete,
        attempt.release,
        lambda: attempt.fail("no"),
    ):
        with pytest.raises(WindlassError, match="as a function"):
            use()
    with pytest.raises(WindlassError, match="as a function"):
        await attempt.acomplete()
    with pytest.raises(WindlassError, match="as a function"):
        await attempt.arenew()
    assert attempt.lease_expires_at is None


def test_one_task_cannot_replace_the_input_of_another() -> None:
    with pytest.raises(InvalidInput, match="scope='type'"):
        Unique("key", until="claimed", on_conflict="replace", scope="app")


async def test_run_worker_in_an_event_loop_names_the_other(fresh_sqlite_url: str) -> None:
    with pytest.raises(WindlassError, match="await arun_worker"):
        Windlass(fresh_sqlite_url).run_worker(until_idle=True)


def test_an_unknown_option_of_a_task_is_named_with_those_that_there_are(fresh_sqlite_url: str) -> None:
    with pytest.raises(TypeError, match=r"unknown option retries of a task; there are: .*max_attempts"):
        Windlass(fresh_sqlite_url).task(retries=3)  # type: ignore[call-overload]


def test_an_option_among_the_arguments_is_told_where_it_belongs() -> None:
    app = Windlass("sqlite://")

    @app.task
    def add(a: int, b: int) -> int:
        return a + b

    with pytest.raises(InvalidInput, match=r"unexpected keyword argument 'delay'; .* add\.using\(delay=…\)"):
        add.enqueue(1, 2, delay="1m")  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("", "the URL of the store is empty"),
        ("postgresql+psycopg://localhost/shop", "leave the driver's name out"),
    ],
)
def test_a_url_that_names_no_store_says_what_to_write(url: str, says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        Windlass(url)


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match=f"there is no folder {tmp_path}/nowhere"):
        Windlass(f"sqlite:///{tmp_path}/nowhere/jobs.db").migrate()


def test_an_app_named_by_its_file_is_refused_with_its_module() -> None:
    refused = CliRunner().invoke(main, ["worker", "jobs.py:app"])
    assert refused.exit_code == 2
    assert "as in jobs:app" in refused.output


def test_cancelling_a_running_job_says_that_it_still_runs(tmp_path: Path) -> None:
    app = Windlass(f"sqlite:///{tmp_path / 'jobs.db'}")
    job = app.enqueue("any")
    assert len(app.claim()) == 1
    done = CliRunner().invoke(main, ["jobs", "cancel", str(job.id), "--url", app.url])
    assert done.output == f"{job.id} is to be cancelled: its worker ends it\n"
    app.close()

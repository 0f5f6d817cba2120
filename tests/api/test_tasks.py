"""`Tasks()` and `app.include(tasks)`: tasks of a module that knows no app."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest

from tests.api import mail
from tests.api.program import run
from windlass import Continue, InvalidInput, Tasks, Windlass, WindlassError

pytestmark = pytest.mark.one_store  # nothing here depends on which


def collection() -> Tasks:
    tasks = Tasks()

    @tasks.task(queue="mail", priority=7, max_attempts=5, unique=lambda n: f"n-{n}")
    async def send(n: int) -> str:
        return f"sent {n}"

    @tasks.task("after")
    def follow(n: int) -> Continue[str]:
        return Continue(tasks.tasks["send"].call(n))

    return tasks


def test_a_modules_tasks_work_once_an_app_has_included_them(app: Windlass) -> None:
    app.include(mail.tasks, prefix="mail.")
    job = mail.send.enqueue(42)
    app.run_worker(until_idle=True)
    assert (job.type, job.queue, job.max_attempts, job.result(20)) == ("mail.send", "mail", 5, "sent to 42")
    assert mail.urgent.enqueue(1).priority == 50
    assert app.enqueue("mail.send", {"user_id": 1}).queue == "mail"


async def test_a_collected_task_stays_callable() -> None:
    assert await mail.send(3) == "sent to 3"


def test_options_and_chains_of_collected_tasks(app: Windlass) -> None:
    tasks = collection()
    app.include(tasks)
    send, follow = tasks.tasks["send"], tasks.tasks["after"]
    job = send.enqueue(1)
    assert (job.priority, job.unique_key, send.enqueue(1).created) == (7, "n-1", False)
    chain = follow.enqueue(2)
    app.run_worker(until_idle=True)
    assert chain.result(20) == "sent 2"


def test_before_the_inclusion_the_error_says_how_to_include_them() -> None:
    send = collection().tasks["send"]
    for use in (
        lambda: send.enqueue(1),
        lambda: send.call(1),
        lambda: send.using(delay=1).enqueue(1),
        lambda: send.app,
    ):
        with pytest.raises(WindlassError, match=r"send belongs to no app yet: app\.include\(tasks\)"):
            use()


def test_names_that_are_taken_are_refused_and_nothing_is_included(app: Windlass) -> None:
    tasks = collection()

    @app.task
    def after() -> None: ...

    with pytest.raises(InvalidInput, match="there is a task 'after' already"):
        app.include(tasks)
    assert list(app.tasks) == ["after"]
    with pytest.raises(WindlassError, match="belongs to no app"):
        tasks.tasks["send"].enqueue(1)
    app.include(tasks, prefix="more.")
    assert sorted(app.tasks) == ["after", "more.after", "more.send"]
    with pytest.raises(InvalidInput, match=r"there is a task 'more\.send' already"):
        app.include(tasks, prefix="more.")
    with pytest.raises(InvalidInput, match="there is a task 'send' already"):
        tasks.task("send")(lambda: None)


def test_a_task_that_is_declared_after_the_inclusion_is_included_too(app: Windlass) -> None:
    tasks = Tasks()
    app.include(tasks, prefix="late.")

    @tasks.task
    def added(n: int) -> int:
        return n

    job = added.enqueue(3)
    app.run_worker(until_idle=True)
    assert (job.type, job.result(20)) == ("late.added", 3)


def test_several_apps_may_include_them_and_the_last_one_enqueues(new_app: Callable[..., Windlass]) -> None:
    tasks, first, second = collection(), new_app(), new_app()
    send = tasks.tasks["send"]
    kept = send.using(priority=1)
    first.include(tasks)
    second.include(tasks, prefix="second.")
    assert (send.enqueue(1).type, kept.enqueue(2).type) == ("second.send", "second.send")
    assert (first.tasks["send"].enqueue(3).type, first.enqueue("send", {"n": 4}).type) == ("send", "send")
    assert first.tasks["send"].app is first
    assert second.tasks["second.send"].app is second


@pytest.mark.parametrize(("what", "prefix"), [([mail.send], ""), (mail, ""), (Tasks(), None), (Tasks, "")])
def test_what_cannot_be_included_is_refused(what: object, prefix: object) -> None:
    with pytest.raises(InvalidInput):
        Windlass("sqlite://").include(what, prefix)  # type: ignore[arg-type]


def test_a_payload_is_bounded_as_its_app_says() -> None:
    app, tasks = Windlass("sqlite://", max_payload=20), Tasks()

    @tasks.task
    def save(text: str) -> None: ...

    app.include(tasks)
    with pytest.raises(InvalidInput, match="save"):
        save.enqueue("x" * 30)


@pytest.mark.parametrize("main", [False, True], ids=["app in a module", "app in the program"])
def test_a_child_process_finds_the_app_that_included_its_task(tmp_path: Path, main: bool) -> None:
    (tmp_path / "mail.py").write_text(Path(mail.__file__).read_text())
    app = dedent("""
        import mail
        from windlass import Windlass
        app = Windlass("sqlite:///jobs.db")
        app.include(mail.tasks, prefix="mail.")
        """)
    work = dedent("""
        if __name__ == "__main__":
            job = mail.heavy.enqueue(3)
            app.run_worker(until_idle=True)
            print(job.result(20))
        """)
    (tmp_path / "jobs.py").write_text(app)
    (tmp_path / "program.py").write_text(app + work if main else "import mail\nfrom jobs import app\n" + work)
    done = run("program.py", folder=tmp_path)
    assert (done.stdout, done.stderr) == ("3 of sqlite: mail.send, mail.heavy\n", "")


def test_an_app_that_no_child_process_can_find_is_an_error_that_says_so(tmp_path: Path) -> None:
    app = Windlass(f"sqlite:///{tmp_path / 'jobs.db'}")
    app.include(mail.tasks)
    job = mail.heavy.using(max_attempts=1).enqueue(1)
    holder = [app]
    del app
    holder[0].run_worker(until_idle=True)
    assert "needs the app at the top of a module" in str(job.refresh().error)
    holder[0].close()


def test_a_worker_from_the_shell_runs_included_tasks(tmp_path: Path) -> None:
    (tmp_path / "mail.py").write_text(Path(mail.__file__).read_text())
    (tmp_path / "jobs.py").write_text(
        "import mail\nfrom windlass import Windlass\napp = Windlass('sqlite:///jobs.db')\napp.include(mail.tasks)\n"
    )
    added = run("-m", "windlass", "enqueue", "jobs:app", "send", '{"user_id": 5}', folder=tmp_path)
    assert added.returncode == 0, added.stderr
    worked = run("-m", "windlass", "worker", "jobs:app", "--until-idle", folder=tmp_path)
    assert worked.returncode == 0, worked.stderr
    app = Windlass(f"sqlite:///{tmp_path / 'jobs.db'}")
    assert [(job.state, job.output) for job in app.list()] == [("completed", "sent to 5")]
    app.close()

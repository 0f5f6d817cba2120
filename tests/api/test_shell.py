"""Looking at a queue and acting on it from a shell, on each store."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result

from windlass import Windlass
from windlass.cli import main


class Shell:
    def __init__(self, url: str) -> None:
        self.url = url

    def run(self, *arguments: str) -> Result:
        return CliRunner(env={"WINDLASS_URL": self.url, "COLUMNS": "200"}).invoke(main, arguments)

    def text(self, *arguments: str) -> str:
        done = self.run(*arguments)
        assert done.exit_code == 0, done.output
        return done.output

    def data(self, *arguments: str) -> Any:
        return json.loads(self.text(*arguments, "--json"))


@pytest.fixture
def shell(store_url: str, app: Windlass) -> Shell:
    app.migrate()
    return Shell(store_url)


@pytest.fixture
def app(store_url: str) -> Iterator[Windlass]:
    app = Windlass(store_url)
    yield app
    app.close()


def test_an_empty_queue(shell: Shell, app: Windlass) -> None:
    assert shell.text("jobs", "list") == "there are no such jobs\n"
    assert shell.text("queues") == "there are no queues yet\n"
    assert shell.text("stats") == "there are no jobs yet\n"
    assert shell.text("workers") == "no worker is alive\n"
    assert shell.text("schedules") == "there are no schedules\n"
    assert shell.data("jobs", "list") == {"jobs": [], "next_cursor": None}


def test_looking(shell: Shell, app: Windlass) -> None:
    @app.task(max_attempts=1, queue="mail")
    def fails(text: str) -> None:
        raise RuntimeError(text)

    app.schedule("0 3 * * *", fails.call("nightly"), name="nightly")
    failed = fails.enqueue("[bold]no markup[/bold]\x1b[31m")
    app.run_worker(until_idle=True)
    waiting = [app.enqueue("unknown", {"n": n}, tenant="acme") for n in range(3)]
    app.pause("mail")
    listed = shell.text("jobs", "list", "--state", "failed")
    assert str(failed.id) in listed
    assert "[bold]no markup[/bold]" in listed
    assert "\x1b[31m" not in listed
    page = shell.data("jobs", "list", "--tenant", "acme", "--limit", "2")
    assert [job["id"] for job in page["jobs"]] == [str(job.id) for job in (waiting[2], waiting[1])]
    rest = shell.data("jobs", "list", "--tenant", "acme", "--cursor", page["next_cursor"])
    assert [job["id"] for job in rest["jobs"]] == [str(waiting[0].id)]
    details = shell.data("jobs", "show", str(failed.id))
    assert (details["state"], details["attempts"][0]["number"]) == ("failed", 1)
    assert "RuntimeError" in details["traceback"]
    assert "has failed" in details["explanation"]
    assert "RuntimeError" in shell.text("jobs", "show", str(failed.id))
    assert "no worker is alive" in shell.text("jobs", "explain", str(waiting[0].id))
    assert {(one["name"], one["paused"], one["failed"]) for one in shell.data("queues")} == {
        ("mail", True, 1),
        ("default", False, 0),
    }
    assert "paused" in shell.text("queues")
    assert shell.data("stats")["states"]["pending"] == 3
    assert "unknown" in shell.text("stats")
    (nightly,) = shell.data("schedules")
    assert (nightly["name"], nightly["cron"], len(nightly["next"])) == ("nightly", "0 3 * * *", 5)
    assert "0 3 * * *" in shell.text("schedules")


def test_the_next_five_runs_of_a_schedule_fit_a_terminal(shell: Shell, app: Windlass) -> None:
    app.schedule("0 3 * * *", app.call("tidy", {}), name="tidy-up-after-all-customers", timezone="Europe/Berlin")
    app.schedule("@every 90s", app.call("poll", {}), name="poll")
    app.migrate()
    expected = [run.strftime("%Y-%m-%d %H:%M:%S") for one in app.schedules() for run in one.next_runs]
    assert len(expected) == 10
    done = CliRunner(env={"WINDLASS_URL": shell.url, "COLUMNS": "80"}).invoke(main, ["schedules"])
    lines = [line for line in done.output.splitlines() if line.startswith("│")]
    assert [line.split("│")[-2].strip() for line in lines] == expected
    assert {len(line) for line in lines} == {80}
    assert "…" not in done.output


def test_acting(shell: Shell, app: Windlass) -> None:
    jobs = [app.enqueue("task", {"n": n}, delay="1h") for n in range(3)]
    ids = [str(job.id) for job in jobs]
    assert shell.text("jobs", "run-now", ids[0]) == f"{ids[0]} is due: pending\n"
    assert [job["state"] for job in shell.data("jobs", "cancel", ids[1], ids[2])] == ["cancelled", "cancelled"]
    assert shell.text("jobs", "retry", ids[1]) == f"{ids[1]} is retried: pending\n"
    assert shell.text("jobs", "delete", ids[2]) == f"{ids[2]} is deleted\n"
    assert app.get(ids[2]) is None


def test_deleting_with_what_a_job_waited_for(shell: Shell, app: Windlass) -> None:
    before = app.enqueue("task", {"n": 1})
    job = app.enqueue("task", {"n": 2}, after=[before])
    assert shell.run("jobs", "delete", str(before.id), "--cascade").exit_code == 1
    assert shell.text("jobs", "delete", "--cascade", str(job.id)) == f"{job.id} is deleted\n"
    assert list(app.list()) == []


def test_acting_on_several_of_which_one_cannot_be(shell: Shell, app: Windlass) -> None:
    first, second, third = [str(app.enqueue("task", {"n": n}).id) for n in range(3)]
    missing = "0192f0c8-0000-7000-8000-000000000000"
    wrong = shell.run("jobs", "cancel", first, "5", second)
    assert (wrong.exit_code, "id is a UUID" in wrong.output) == (2, True)
    assert app.require(first).state == "pending"
    done = shell.run("jobs", "cancel", first, missing, second)
    assert done.exit_code == 1
    assert done.stdout == f"{first} is cancelled: cancelled\n{second} is cancelled: cancelled\n"
    assert done.stderr.startswith(f"Error: there is no job {missing}")
    mixed = shell.run("jobs", "run-now", first, third, "--json")
    refused, due = json.loads(mixed.output)
    assert (mixed.exit_code, refused["id"], due["id"], due["state"]) == (1, first, third, "pending")
    assert "cancelled" in refused["refused"]
    assert "refused" not in due
    gone = shell.run("jobs", "delete", missing, third, "--json")
    assert (gone.exit_code, json.loads(gone.output)[1]) == (1, {"id": third})
    assert app.get(third) is None


def test_enqueueing(shell: Shell, app: Windlass) -> None:
    done = shell.data("enqueue", shell.url, "task", '{"n": 1}', "--queue", "q", "--unique", "key")
    assert (done["type"], done["queue"], done["created"]) == ("task", "q", True)
    assert "existed already" in shell.text("enqueue", shell.url, "task", "{}", "--unique", "key")
    assert app.require(done["id"]).input == {"n": 1}
    assert "0/?" in shell.text("jobs", "list")  # how often it is tried, its worker will know
    app.task("task", max_attempts=None)(lambda n=0: None).enqueue()
    assert "0/∞" in shell.text("jobs", "list")


def test_enqueueing_without_an_app(shell: Shell, app: Windlass) -> None:
    """The environment has the store's URL, or `--url` has."""
    nowhere = Shell("sqlite:////nowhere/at/all.db")
    for done in (
        shell.data("enqueue", "task", '{"n": 1}'),
        shell.data("enqueue", "task"),
        nowhere.data("enqueue", "--url", shell.url, "task", '{"n": 1}'),
        nowhere.data("enqueue", "task", "--url", shell.url),
        nowhere.data("enqueue", shell.url, "task", '{"n": 1}'),
        nowhere.data("enqueue", shell.url, "task"),
    ):
        assert (done["type"], done["created"]) == ("task", True)
        assert app.require(done["id"]).input in ({"n": 1}, {})
    assert app.counts().total == 6


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["jobs", "show", "5"], 2, "id is a UUID"),
        (["jobs", "show", "0192f0c8-0000-7000-8000-000000000000"], 1, "there is no job"),
        (["jobs", "retry", "0192f0c8-0000-7000-8000-000000000000"], 1, "there is no job"),
        (["jobs", "list", "--limit", "0"], 2, "--limit"),
        (["jobs", "list", "--state", "lost"], 2, "--state"),
        (["jobs", "list", "--cursor", "x"], 2, "cursor"),
        (["jobs", "cancel"], 2, "no job is given"),
    ],
)
def test_wrong_use(fresh_sqlite_url: str, arguments: list[str], code: int, message: str) -> None:
    Windlass(fresh_sqlite_url).migrate()
    done = Shell(fresh_sqlite_url).run(*arguments)
    assert (done.exit_code, message in done.output) == (code, True), done.output


@pytest.mark.parametrize(
    ("input", "message"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "nested"),
        ('{"n": 1, "n": 2}', "'n' appears more than once"),
        ('{"n": {"m": 1, "m": 1}}', "'m' appears more than once"),
        ('{"n": NaN}', "nan is not JSON"),
        ("[1]", "an object of arguments"),
        ("null", "an object of arguments"),
    ],
)
def test_an_input_that_is_refused(fresh_sqlite_url: str, input: str, message: str) -> None:
    Windlass(fresh_sqlite_url).migrate()
    shell = Shell(fresh_sqlite_url)
    done = shell.run("enqueue", fresh_sqlite_url, "task", input)
    assert (done.exit_code, message in done.output) == (2, True), done.output
    assert shell.data("jobs", "list")["jobs"] == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["task"], "jobs:app"),
        (["task", "{}"], "jobs:app"),
        (["--url", "sqlite://", "my_jobs:app", "task", "{}"], "not both"),
        (["my_jobs:app", "task", "{}", "{}"], "too many"),
        ([], "Missing argument"),
    ],
)
def test_enqueueing_to_where(arguments: list[str], message: str) -> None:
    done = CliRunner(env={"WINDLASS_URL": None}).invoke(main, ["enqueue", *arguments])
    assert (done.exit_code, message in done.output) == (2, True), done.output


def test_queues_are_paused_and_resumed(shell: Shell, app: Windlass) -> None:
    app.enqueue("any", queue="mail")
    assert shell.text("queues", "pause", "mail", "reports") == "mail is paused\nreports is paused\n"
    assert sorted(app.paused()) == ["mail", "reports"]
    assert app.claim(queues=["mail"]) == []
    assert shell.text("queues", "resume", "mail") == "mail is resumed\n"
    assert app.paused() == ["reports"]
    assert len(app.claim(queues=["mail"])) == 1


def test_an_app_is_not_taken_for_a_queue(shell: Shell, app: Windlass) -> None:
    refused = shell.run("queues", "pause", "mail", "jobs:app")
    assert refused.exit_code == 2
    assert "--app jobs:app" in refused.output
    assert app.paused() == []


def test_schedules_are_paused_resumed_and_run(shell: Shell, app: Windlass) -> None:
    app.schedule("0 3 * * *", app.call("nightly", {"n": 1}), name="nightly")
    app.schedules()
    assert shell.text("schedules", "pause", "nightly") == "nightly is paused\n"
    assert shell.data("schedules")[0]["paused"] is True
    said = shell.text("schedules", "run", "nightly")
    (job,) = app.list()
    assert said == f"nightly is run: job {job.id}\n"
    assert (job.type, job.input, job.state) == ("nightly", {"n": 1}, "pending")
    assert shell.text("schedules", "resume", "nightly") == "nightly is resumed\n"
    assert shell.data("schedules", "list")[0]["paused"] is False
    missing = shell.run("schedules", "run", "weekly")
    assert (missing.exit_code, "there is no schedule 'weekly'" in missing.output) == (1, True)

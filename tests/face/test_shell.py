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
def shell(store_url: str) -> Shell:
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


def test_acting(shell: Shell, app: Windlass) -> None:
    jobs = [app.enqueue("task", {"n": n}, delay="1h") for n in range(3)]
    ids = [str(job.id) for job in jobs]
    assert shell.text("jobs", "run-now", ids[0]) == f"{ids[0]} is due: pending\n"
    assert [job["state"] for job in shell.data("jobs", "cancel", ids[1], ids[2])] == ["cancelled", "cancelled"]
    assert shell.text("jobs", "retry", ids[1]) == f"{ids[1]} is brought back: pending\n"
    assert shell.text("jobs", "delete", ids[2]) == f"{ids[2]} is deleted\n"
    assert app.get(ids[2]) is None


def test_enqueueing(shell: Shell, app: Windlass) -> None:
    done = shell.data("enqueue", shell.url, "task", '{"n": 1}', "--queue", "q", "--unique", "key")
    assert (done["type"], done["queue"], done["created"]) == ("task", "q", True)
    assert "was there already" in shell.text("enqueue", shell.url, "task", "{}", "--unique", "key")
    assert app.require(done["id"]).input == {"n": 1}


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["jobs", "show", "5"], 2, "id is a UUID"),
        (["jobs", "show", "0192f0c8-0000-7000-8000-000000000000"], 1, "there is no job"),
        (["jobs", "retry", "0192f0c8-0000-7000-8000-000000000000"], 1, "there is no job"),
        (["jobs", "list", "--limit", "0"], 2, "--limit"),
        (["jobs", "list", "--state", "lost"], 2, "--state"),
        (["jobs", "list", "--cursor", "x"], 2, "cursor"),
        (["jobs", "cancel"], 2, "Missing argument"),
    ],
)
def test_wrong_use(fresh_sqlite_url: str, arguments: list[str], code: int, message: str) -> None:
    done = Shell(fresh_sqlite_url).run(*arguments)
    assert (done.exit_code, message in done.output) == (code, True), done.output


def test_an_input_that_is_not_json(fresh_sqlite_url: str) -> None:
    done = Shell(fresh_sqlite_url).run("enqueue", fresh_sqlite_url, "task", "{")
    assert (done.exit_code, "not JSON" in done.output) == (2, True)

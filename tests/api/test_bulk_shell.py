"""Acting on all jobs that match a filter, from a shell: with a count, and a question."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest

from windlass import Windlass
from windlass.cli import actions

from .test_shell import Shell, app, shell

__all__ = ["app", "shell"]


def states(app: Windlass) -> list[str]:
    return sorted(job.state for job in app.list(limit=100))


def test_jobs_that_match_are_retried(shell: Shell, app: Windlass) -> None:
    app.enqueue_many([app.call(name, {"n": n}, max_attempts=1) for name in ("mail", "report") for n in range(3)])
    for attempt in app.claim(10):
        attempt.fail("no")
    assert shell.text("jobs", "retry", "--type", "mail", "--yes") == "3 jobs: retried\n"
    assert shell.data("jobs", "retry", "--state", "failed", "--yes") == {"jobs": 3}
    assert shell.text("jobs", "retry", "--all", "--yes") == "0 jobs: retried\n"
    assert states(app) == ["pending"] * 6


def test_jobs_of_a_queue_are_cancelled_and_deleted(shell: Shell, app: Windlass) -> None:
    for queue in ("mail", "other"):
        app.enqueue("task", queue=queue)
    assert shell.text("jobs", "cancel", "--queue", "mail", "--yes") == "1 job: cancelled\n"
    assert shell.text("jobs", "delete", "--state", "cancelled", "--yes") == "1 job: deleted\n"
    assert states(app) == ["pending"]


@pytest.mark.parametrize("given", ["2h", "PT2H", "2020-01-31T08:00:00+01:00"])
def test_jobs_since(shell: Shell, app: Windlass, given: str) -> None:
    app.enqueue("task")
    assert len(shell.data("jobs", "list", "--since", given)["jobs"]) == 1
    assert shell.text("jobs", "cancel", "--since", given, "--yes") == "1 job: cancelled\n"


@pytest.mark.one_store
@pytest.mark.parametrize("given", ["soon", "2030-01-31", "2030-01-31T08:00:00", "-5m"])
def test_a_wrong_moment_is_refused(shell: Shell, given: str) -> None:
    done = shell.run("jobs", "cancel", "--since", given, "--yes")
    assert (done.exit_code, "give 2h" in done.output) == (2, True)


@pytest.mark.one_store
def test_a_script_must_say_yes(shell: Shell, app: Windlass) -> None:
    app.enqueue("task")
    done = shell.run("jobs", "delete", "--all")
    assert (done.exit_code, "1 job matches: to act on it in a script, say --yes" in done.output) == (2, True)
    assert shell.text("jobs", "retry", "--all") == "there are no such jobs\n"
    assert states(app) == ["pending"]


@pytest.mark.one_store
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["retry"], "no job is given"),
        (["retry", "0192f0c8-0000-7000-8000-000000000000", "--all"], "not both"),
        (["delete", "--cascade", "--all", "--yes"], "--cascade goes with ids"),
        (["cancel", "--all", "--type", "mail", "--yes"], "give a filter or all=True, not both"),
    ],
)
def test_wrong_use_is_refused(shell: Shell, arguments: list[str], said: str) -> None:
    done = shell.run("jobs", *arguments)
    assert (done.exit_code, said in done.output) == (2, True)


@pytest.mark.one_store
def test_many_are_counted_up_to_a_bound(shell: Shell, app: Windlass, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actions, "PAGE", 2)
    monkeypatch.setattr(actions, "MOST_COUNTED", 5)
    app.enqueue_many([app.call("task", {"n": n}) for n in range(9)])
    assert "more than 5 jobs" in shell.run("jobs", "cancel", "--all").output


@pytest.mark.one_store
@pytest.mark.parametrize(("answer", "left"), [("y", "cancelled"), ("n", "pending")])
def test_a_person_is_asked(shell: Shell, app: Windlass, answer: str, left: str) -> None:
    app.enqueue("task")
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "windlass", "jobs", "cancel", "--type", "task"]
    environment = {**os.environ, "WINDLASS_URL": shell.url}
    process = subprocess.Popen(command, stdin=theirs, stdout=subprocess.PIPE, text=True, env=environment)
    os.write(ours, f"{answer}\n".encode())
    said, _ = process.communicate(timeout=30)
    os.close(ours)
    os.close(theirs)
    assert "cancel 1 job?" in said
    assert process.returncode == (0 if answer == "y" else 1)
    assert states(app) == [left]

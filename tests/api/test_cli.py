"""The shell."""

from __future__ import annotations

import os
import re
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner, Result
from pymongo import MongoClient

import windlass
from examples.tour import Check, Progress
from tests.api.program import run
from windlass import Windlass
from windlass.cli import main
from windlass.embedded import free_port

demo_module = import_module("windlass.cli.demo")  # the command has the same name

JOBS = """
from windlass import Windlass

app = Windlass("sqlite:///jobs.db", prefix="my_")
other = 5
"""


def shell(*arguments: str) -> Result:
    return CliRunner(env={"WINDLASS_URL": None}).invoke(main, arguments)


def test_the_demo_is_a_tour_that_ends_by_itself(tmp_path: Path) -> None:
    done = run("-c", "from windlass.cli import main; main()", "demo", folder=tmp_path, TMPDIR=str(tmp_path))
    assert done.returncode == 0
    assert "Windlass: the database is the queue" in done.stdout
    assert [line[0] for line in done.stdout.splitlines()[:5]] == ["✓"] * 5
    assert "✗" not in done.stdout
    assert re.search(r"(\d+) of \1 checks hold", done.stdout)
    assert done.stderr == ""
    assert os.listdir(tmp_path) == []


def test_the_demo_on_your_server_leaves_nothing_there(postgres_url: str, mongodb_url: str) -> None:
    for option, url in (("--postgres", postgres_url), ("--mongodb", mongodb_url)):
        done = shell("demo", option, url)
        assert done.exit_code == 0, done.output
        assert "✗" not in done.output
    with psycopg.connect(postgres_url) as connection:
        left = connection.execute("SELECT datname FROM pg_database WHERE datname LIKE 'windlass_demo%'").fetchall()
    assert left == []
    client: MongoClient[Any] = MongoClient(mongodb_url)
    with client:
        assert not [name for name in client.list_database_names() if name.startswith("windlass_demo")]


def test_a_demo_in_which_a_check_does_not_hold_or_a_tour_breaks_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    class Wrong:
        @staticmethod
        def tour(url: str, progress: Progress) -> list[Check]:
            return [Check("jobs", 2, 1)]

    class Broken:
        @staticmethod
        def tour(url: str, progress: Progress) -> list[Check]:
            raise RuntimeError("out of order")

    tours = {"session_pump": Wrong, "order_pipeline": Broken}
    monkeypatch.setattr(demo_module, "TOURS", dict.fromkeys(tours, "a tour"))
    monkeypatch.setattr(demo_module, "load", tours.__getitem__)
    done = shell("demo")
    assert done.exit_code == 1
    assert "1, not 2" in done.output
    assert "out of order" in done.output
    assert "0 of 1 checks hold" in done.output
    assert shell("demo", "--postgres", "--mongodb").exit_code == 2


def test_migrate(empty_store_url: str) -> None:
    first, second = shell("migrate", "--url", empty_store_url), shell("migrate", "--url", empty_store_url)
    assert first.exit_code == second.exit_code == 0
    assert first.output.startswith("applied 0001")
    assert second.output == "the schema is up to date\n"
    app = Windlass(empty_store_url, auto_migrate=False)
    assert app.counts().total == 0
    app.close()


def test_migrate_by_the_environment(fresh_sqlite_url: str) -> None:
    done = CliRunner(env={"WINDLASS_URL": fresh_sqlite_url}).invoke(main, ["migrate"])
    assert (done.exit_code, done.output[:7]) == (0, "applied")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a module of jobs lies, as if one had gone there."""
    (tmp_path / "my_jobs.py").write_text(JOBS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path[:])
    monkeypatch.delitem(sys.modules, "my_jobs", raising=False)
    return tmp_path


def test_the_app_that_a_module_names(folder: Path) -> None:
    for target, word in (("my_jobs:app", "applied"), ("my_jobs", "up to date")):
        done = shell("migrate", target)
        assert done.exit_code == 0
        assert word in done.output
    app = Windlass(f"sqlite:///{folder / 'jobs.db'}", prefix="my_", auto_migrate=False)
    assert app.counts().total == 0
    app.close()


def test_the_app_that_is_named_goes_before_the_environment(folder: Path) -> None:
    elsewhere = {"WINDLASS_URL": "sqlite:////nowhere/at/all.db"}
    done = CliRunner(env=elsewhere).invoke(main, ["enqueue", "--unknown", "my_jobs:app", "task", '{"n": 1}'])
    assert done.exit_code == 0, done.output
    app = Windlass(f"sqlite:///{folder / 'jobs.db'}", prefix="my_", auto_migrate=False)
    assert [job.input for job in app.list()] == [{"n": 1}]
    app.close()


@pytest.mark.parametrize(
    ("target", "reason"),
    [("my_jobs:none", "none"), ("my_jobs:other", "not a Windlass app"), ("no_jobs:app", "no_jobs")],
)
def test_an_app_that_is_not_there(folder: Path, target: str, reason: str) -> None:
    done = shell("migrate", target)
    assert done.exit_code == 2
    assert f"Error: {target}" in done.output
    assert reason in done.output


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("sqlite://", ["CREATE TABLE windlass_jobs", "CREATE TABLE windlass_history"]),
        ("postgresql://localhost/jobs", ['CREATE TABLE "public"."windlass_jobs"']),
        ("mongodb://localhost/jobs", ["createIndex", "windlass_jobs"]),
    ],
)
def test_the_schema_can_be_printed_without_a_server(url: str, words: list[str]) -> None:
    done = shell("sql", "--url", url)
    assert done.exit_code == 0
    text = " ".join(done.output.split())
    for word in words:
        assert word in text


def test_wrong_use_ends_with_2_and_one_line() -> None:
    for url in ("mysql://localhost", "sqlite://jobs.db"):
        for command in ("migrate", "sql"):
            done = shell(command, "--url", url)
            assert done.exit_code == 2
            assert done.output.startswith(f"Error: {url}: ")
            assert done.output.count("\n") == 1
    assert shell("nonsense").exit_code == 2


def test_a_failure_ends_with_1_and_one_line() -> None:
    done = shell("migrate", "--url", f"postgresql://user:hunter2@127.0.0.1:{free_port()}/jobs")
    assert done.exit_code == 1
    assert done.output.startswith("Error: PostgreSQL at postgresql://user:***@127.0.0.1")
    assert done.output.count("\n") == 1
    assert "hunter2" not in done.output


def test_version_and_help() -> None:
    assert shell("--version").output == f"windlass, version {windlass.__version__}\n"
    done = shell("--help")
    assert done.exit_code == 0
    for command in ("demo", "migrate", "sql"):
        assert command in done.output

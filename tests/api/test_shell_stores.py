"""Which store a shell command looks at: never one that is made by looking."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from windlass import Windlass
from windlass.cli import main

LOOKS = [["jobs", "list"], ["queues"], ["stats"], ["workers"], ["jobs", "show", "0" * 32], ["jobs", "retry", "0" * 32]]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str) -> Result:
    return CliRunner(env={"WINDLASS_URL": None, "COLUMNS": "80"}).invoke(main, arguments)


@pytest.mark.parametrize("command", LOOKS)
def test_without_a_store_it_asks_for_one(folder: Path, command: list[str]) -> None:
    done = run(*command)
    assert done.exit_code == 2
    assert "give jobs:app, --url or $WINDLASS_URL" in done.output
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("command", LOOKS)
def test_a_file_that_is_not_there_is_not_made(folder: Path, command: list[str]) -> None:
    done = run(*command, "--url", "sqlite:///typo.db")
    assert done.exit_code == 2
    assert "there is no file" in done.output
    assert list(folder.iterdir()) == []


def test_the_default_file_is_found_if_it_is_there() -> None:
    Windlass().enqueue("greet")
    assert "greet" in run("jobs", "list").output


def test_ids_can_be_copied_from_a_narrow_terminal() -> None:
    job = Windlass().enqueue("greet")
    assert str(job.id) in run("jobs", "list").output
    done = run("jobs", "cancel", str(job.id), "jobs:app")
    assert done.exit_code == 2
    assert "--app jobs:app" in done.output

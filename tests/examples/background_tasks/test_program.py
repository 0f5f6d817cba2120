"""The program and the tour, each by itself."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from examples.background_tasks.tour import tour
from windlass import Windlass

ROOT = Path(__file__).parents[3]
PROGRAM = [sys.executable, "-m", "examples.background_tasks"]


def test_the_tour_is_right_on_each_store(store_url: str) -> None:
    told: list[tuple[int, int]] = []
    checks = tour(store_url, lambda done, total: told.append((done, total)))
    assert [check for check in checks if not check.right] == []
    assert len(checks) == 4
    assert told == [(0, 4), (1, 4), (2, 4), (3, 4), (4, 4)]
    app = Windlass(store_url)
    assert app.counts().total == 0
    app.close()


def test_a_plain_start_shows_the_system_at_work() -> None:
    done = subprocess.run(PROGRAM, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("✓") == 4


def test_create_and_process_until_told_to_stop(fresh_sqlite_url: str, tmp_path: Path) -> None:
    def create(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [*PROGRAM, "--url", fresh_sqlite_url, "create", *arguments]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)

    once = [create("send_postcard", '{"to": "grandmother"}', "--name", "card") for _ in range(2)]
    assert once[0].stdout == once[1].stdout != ""
    assert create("send_postcard", "[1]").returncode == create("send_postcard", "{").returncode == 2
    process = [*PROGRAM, "--url", fresh_sqlite_url, "process", "--folder", str(tmp_path)]
    environment = os.environ | {"TASKS_RETRY_DELAY": "1h"}
    with subprocess.Popen(process, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True) as running:
        assert running.stderr is not None
        assert "there is no handler for 'send_postcard'" in running.stderr.readline()
        assert "processed 1 tasks" in running.stderr.readline()
        running.send_signal(signal.SIGTERM)
        assert running.wait(20) == 0
    app = Windlass(fresh_sqlite_url)
    (task,) = app.list()
    app.close()
    assert (task.attempt, task.input) == (1, json.loads('{"to": "grandmother"}'))

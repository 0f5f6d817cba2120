"""The program and the tour, each by itself."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from examples.agent_platform.tour import tour

ROOT = Path(__file__).parents[3]


def test_the_tour_is_right_on_each_store(store_url: str) -> None:
    told: list[tuple[int, int]] = []
    began = time.monotonic()
    checks = tour(store_url, lambda done, total: told.append((done, total)))
    assert time.monotonic() - began < 60
    assert [check for check in checks if not check.right] == []
    assert told == [(done, len(checks)) for done in range(len(checks) + 1)]


def test_a_plain_start_shows_the_system_at_work() -> None:
    program = [sys.executable, "-m", "examples.agent_platform"]
    done = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("✓") == 4


def test_the_tour_needs_no_web_framework() -> None:
    """It goes with the wheel, where only the core's dependencies are sure to be there."""
    others = "{'starlette', 'uvicorn', 'httpx', 'psycopg', 'pymongo'}"
    code = f"import sys, examples.agent_platform.tour; print({others} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "set()", done.stderr

"""An app that was used before a fork works on both sides of it: neither disturbs what belongs to the other."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_an_app_survives_a_fork(store_url: str) -> None:
    """In a process that has no threads but the app's; what a driver has to say about forks is taken as a failure."""
    program = [sys.executable, "-W", "error::UserWarning", "-m", "tests.concurrency.forking", store_url]
    done = subprocess.run(program, cwd=ROOT, env=os.environ, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""

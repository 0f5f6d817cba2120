"""The tutorial works as it is printed: its files are written, its commands run, its outputs appear."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.api.program import SOURCES

PAGE = Path(__file__).parents[2] / "docs" / "tutorial.md"
PRINTED_URL = "postgresql://postgres@localhost/shop"


def script(text: str) -> tuple[str, list[list[str]]]:
    """One shell script of all steps, and the lines that each step must print."""
    steps = ["set -eu", "trap 'jobs -p | xargs -r kill' EXIT"]  # a step that fails leaves no worker behind
    expected: list[list[str]] = []
    for language, block in re.findall(r"^```(python|sh|text)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        if language == "python":
            name = re.match(r"# (\w+\.py)\n", block)
            assert name, f"the first line names the file:\n{block}"
            steps.append(f"cat > {name[1]} <<'END'\n{block}END")
        elif language == "sh":
            # The machine of a reader runs one worker, that of the tests many.
            patient = re.sub(r"sleep (\d+)", lambda found: f"sleep {int(found[1]) * 2}", block)
            steps.append(f"{patient}echo '=== step'")
            expected.append([])
        else:
            expected[-1] += block.splitlines()
    return "\n".join(steps), expected


@pytest.mark.timeout(240)
def test_every_step_works(tmp_path: Path, fresh_postgres_url: str) -> None:
    commands, expected = script(PAGE.read_text().replace(PRINTED_URL, fresh_postgres_url))
    assert len(expected) >= 7
    windlass = tmp_path / "windlass"
    windlass.write_text(f'#!/bin/sh\nexec {sys.executable} -m windlass "$@"\n')
    windlass.chmod(0o755)
    inherited = {name: value for name, value in os.environ.items() if name != "WINDLASS_URL"}
    path = f"{tmp_path}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", commands],
        cwd=tmp_path,
        env=inherited | {"PATH": path, "PYTHONPATH": SOURCES, "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    outputs = done.stdout.split("=== step\n")[:-1]
    for output, lines in zip(outputs, expected, strict=True):
        for line in lines:
            assert line in output, f"{line!r} is not in\n{output}"

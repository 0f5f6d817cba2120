"""What mypy and pyright say of code that uses Windlass: nothing where it is right, something where it is wrong."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import windlass

CASES = Path(__file__).parent / "cases"
SOURCES = Path(windlass.__file__).resolve().parent.parent

pytestmark = pytest.mark.timeout(300)


def mypy(folder: Path, *files: Path) -> set[tuple[str, int, str]]:
    (folder / "mypy.ini").write_text("[mypy]\nstrict = True\npython_version = 3.11\nfollow_imports = silent\n")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", folder / "mypy.ini", "--cache-dir", folder / "cache", *files],
        capture_output=True,
        text=True,
        cwd=folder,
        env=os.environ | {"MYPYPATH": str(SOURCES)},
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    found = re.findall(r"^(.+?):(\d+): error: (.+)$", done.stdout, re.MULTILINE)
    return {(Path(file).name, int(line), message) for file, line, message in found}


def pyright(folder: Path, *files: Path) -> set[tuple[str, int, str]]:
    settings = {
        "include": [str(file) for file in files],
        "extraPaths": [str(SOURCES)],
        "pythonVersion": "3.11",
        "typeCheckingMode": "strict",
        "reportUnknownLambdaType": False,  # a lambda's parameters have no types of their own
        "reportUnknownArgumentType": False,
    }
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    done = subprocess.run(
        [sys.executable, "-m", "basedpyright", "--outputjson", "--pythonpath", sys.executable, "--project", folder],
        capture_output=True,
        text=True,
        cwd=folder,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    answer = json.loads(done.stdout)
    assert answer["summary"]["filesAnalyzed"] == len(files)
    found = [one for one in answer["generalDiagnostics"] if one["severity"] == "error"]
    return {(Path(one["file"]).name, one["range"]["start"]["line"] + 1, one["message"]) for one in found}


@pytest.mark.parametrize("check", [mypy, pyright])
def test_arguments_results_and_continuations_are_checked(check, tmp_path: Path) -> None:
    found = check(tmp_path, CASES / "right.py", CASES / "wrong.py")
    assert [one for one in sorted(found) if one[0] == "right.py"] == []
    lines = (CASES / "wrong.py").read_text().splitlines()
    expected = {number for number, line in enumerate(lines, 1) if line.endswith("# wrong")}
    assert len(expected) > 20
    assert {line for file, line, _ in found if file == "wrong.py"} == expected

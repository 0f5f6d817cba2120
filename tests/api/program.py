"""Programs in a process of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import windlass

SOURCES = str(Path(windlass.__file__).resolve().parent.parent)


def run(*arguments: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Python with these arguments, in that folder; without WINDLASS_URL unless it is given."""
    inherited = {name: value for name, value in os.environ.items() if name != "WINDLASS_URL"}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=inherited | {"PYTHONPATH": SOURCES} | environment,
        capture_output=True,
        text=True,
        timeout=110,
    )

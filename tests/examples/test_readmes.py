"""What an example's README tells to type works as written."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
READMES = sorted((ROOT / "examples").glob("*/README.md"))


@pytest.mark.parametrize("readme", READMES, ids=[readme.parent.name for readme in READMES])
@pytest.mark.timeout(300)
def test_its_commands_run(
    readme: Path, tmp_path: Path, fresh_postgres_url: str, fresh_mongodb_url: str, unused_tcp_port: int
) -> None:
    """Each block of commands by itself, from the project's folder, in the environment that `make` prepares."""
    blocks = re.findall(r"^```sh\n(.*?)^```", readme.read_text(), re.MULTILINE | re.DOTALL)
    assert blocks
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "POSTGRES_URL": fresh_postgres_url,
        "MONGODB_URL": fresh_mongodb_url,
        "PORT": str(unused_tcp_port),
        "TMPDIR": str(tmp_path),
    }
    for block in blocks:
        script = ["bash", "-euo", "pipefail", "-c", block]
        done = subprocess.run(script, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, f"{block}\n{done.stdout}\n{done.stderr}"

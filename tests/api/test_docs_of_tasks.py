"""The code in docs/tasks.md runs, from the first block to the last."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

DOCUMENT = Path(__file__).parents[2] / "docs" / "tasks.md"


def test_the_code_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```$", DOCUMENT.read_text(), re.DOTALL | re.MULTILINE)
    assert len(blocks) >= 6
    names: dict[str, Any] = {"__name__": "page"}
    for block in blocks:
        exec(compile(block, DOCUMENT.name, "exec"), names)
    assert names["text"] == "sent to 42"
    assert names["first"].refresh().order_key == "user-7"
    names["app"].close()

"""Each promise in docs/guarantees.md has a link to the file that shows it, and the file exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "guarantees.md"
LINK = re.compile(r"\[([^\]]+)\]\(([^)]+)\)")

PROMISES = re.split(r"\n(?=- |\n|#)", PAGE.read_text())


@pytest.mark.parametrize("promise", [text for text in PROMISES if text.startswith("- ")])
def test_a_promise_is_shown_by_tests(promise: str) -> None:
    links = LINK.findall(promise)
    assert links, "a promise without a test"
    for name, target in links:
        file = (PAGE.parent / target).resolve()
        assert file == ROOT / name
        assert "def test_" in file.read_text()

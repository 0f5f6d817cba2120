"""Words that make a sentence a riddle are in no source, query or document. A sentence names who does something."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RIDDLES = (
    "whoever", "somebody", "nobody", "of one's own", "is told", "lets in", "goes on", "comes to wait",
    "what is", "what was", "what are", "what were",
)  # fmt: skip
RIDDLE = re.compile(rf"\b({'|'.join(map(re.escape, RIDDLES))})\b", re.IGNORECASE)


def files() -> Iterator[Path]:
    for pattern in ("src/**/*.py", "src/**/*.sql", "src/**/*.md", "docs/**/*.md", "README.md"):
        yield from ROOT.glob(pattern)


@pytest.mark.parametrize("file", sorted(files()), ids=lambda file: str(file.relative_to(ROOT)))
def test_each_line_can_be_read_by_a_newcomer(file: Path) -> None:
    found = [
        f"{file.relative_to(ROOT)}:{number}: {line.strip()}"
        for number, line in enumerate(file.read_text().splitlines(), 1)
        if RIDDLE.search(line)
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("riddle", [*RIDDLES, *map(str.upper, RIDDLES)])
def test_each_riddle_is_found_as_whole_words(riddle: str) -> None:
    assert RIDDLE.search(f"Here {riddle}, as a line may have it.")
    assert not RIDDLE.search(f"x{riddle}x")

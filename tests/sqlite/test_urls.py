"""A URL opens exactly the file that it names."""

from __future__ import annotations

from pathlib import Path

import pytest

from windlass import InvalidInput, Windlass


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("h#x.db", "h#x.db"),
        ("h%23x.db", "h#x.db"),
        ("#.db", "#.db"),
        ("h%3Fx.db", "h?x.db"),
        ("h#x.db?journal_mode=delete", "h#x.db"),
        ("a;b c%20d.db", "a;b c d.db"),
        ("100%25.db", "100%.db"),
    ],
)
def test_the_file_that_is_opened(tmp_path: Path, written: str, name: str) -> None:
    app = Windlass(f"sqlite:///{tmp_path}/{written}")
    app.enqueue("anything")
    app.close()
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("url", ["sqlite:///x.db?journal_mode=wal#part", "sqlite:///x.db?mode=ro", "sqlite://x.db"])
def test_what_cannot_be_meant(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidInput):
        Windlass(url).migrate()
    assert list(tmp_path.iterdir()) == []

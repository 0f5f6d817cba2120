"""Log lines: what nobody can forge, and where a record says it came from."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from windlass.logs import Log, one_line

HOSTILE = "a\r\n2031-01-01 ERROR forged\x1b[2J\x1b]0;title\x07\x00\x85\u2028\u202eb"


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no")


def formatted(record: logging.LogRecord) -> str:
    return logging.Formatter("%(levelname)s %(message)s").format(record)


def records_of(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """Of the logger under test: threads of others may have something to say."""
    return [record for record in caplog.records if record.name == "windlass.test"]


def is_harmless(text: str) -> bool:
    return not any(character in text for character in "\r\n\x1b\x07\x00\x85\u2028\u202e")


@pytest.mark.parametrize("value", [HOSTILE, Exception(HOSTILE), Unspeakable(), "\ud800", b"\n"])
def test_whatever_it_is_it_is_one_harmless_line(value: object) -> None:
    assert is_harmless(one_line(value))
    one_line(value).encode()


def test_harmless_text_stays_as_it_is_and_is_not_too_long() -> None:
    assert one_line("größer\\ als 1 🚀") == "größer\\ als 1 🚀"
    assert one_line(HOSTILE).startswith(r"a\r\n2031-01-01 ERROR forged\x1b[2J")
    assert len(one_line("x" * 1_000_000)) < 3_000


def test_arguments_and_fields_are_made_safe(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "windlass.test")
    Log("windlass.test").info("%s, %d and %.1f", HOSTILE, 3, 0.25, extra={"queue": HOSTILE, "attempt": 1, "none": None})
    (record,) = records_of(caplog)
    assert is_harmless(formatted(record))
    assert formatted(record).endswith(", 3 and 0.2")
    assert is_harmless(record.__dict__["queue"])
    assert (record.__dict__["attempt"], record.__dict__["none"]) == (1, None)
    assert (record.name, Path(record.pathname).name) == ("windlass.test", Path(__file__).name)
    assert record.funcName == "test_arguments_and_fields_are_made_safe"


def test_no_line_of_a_traceback_can_pass_for_a_message(caplog: pytest.LogCaptureFixture) -> None:
    log = Log("windlass.test")
    try:
        raise ValueError(HOSTILE)
    except ValueError:
        log.exception("it failed")
    (record,) = records_of(caplog)
    first, *rest = formatted(record).split("\n")
    assert first == "ERROR it failed"
    assert any("forged" in line for line in rest)
    assert all(line.startswith("    ") and is_harmless(line) for line in rest)
    assert record.exc_info is not None  # for those who collect errors
    assert record.exc_info[0] is ValueError


def test_a_record_below_the_level_costs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "windlass.test")
    Log("windlass.test").info("%s", Unspeakable())
    assert records_of(caplog) == []

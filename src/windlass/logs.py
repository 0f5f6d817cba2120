"""A logger whose lines cannot be forged, and whose records carry a job's facts as fields.

Names and error texts come from callers and from servers, so they cannot be trusted. Line breaks and escape sequences
are escaped: one message is one line. A traceback is indented, so that none of its lines looks like a message. A JSON
formatter can use the fields (`extra`).
"""

from __future__ import annotations

import logging
import re
import sys
import traceback
from collections.abc import Mapping
from typing import Any

from .job import Job

LONGEST = 2000  # characters of one argument

# Control characters, line and paragraph separators, characters that change the direction of writing, surrogates.
_DANGEROUS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def one_line(value: object) -> str:
    """The value as one line of text: line breaks and control characters escaped, cut to a limit."""
    try:
        text = str(value)
    except Exception:
        text = f"<{type(value).__name__} whose message cannot be shown>"
    cut = text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
    return _escaped(cut)


def _escaped(text: str) -> str:
    return _DANGEROUS.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def job_fields(job: Job) -> dict[str, object]:
    """The fields of a log record about a job."""
    return {
        "job_id": str(job.id),
        "job_type": job.type,
        "queue": job.queue,
        "attempt": job.attempt,
        "worker": job.worker,
    }


class Log(logging.LoggerAdapter[logging.Logger]):
    """A logger that escapes its arguments and fields. You configure it by its name, like any other."""

    def __init__(self, name: str) -> None:
        super().__init__(logging.getLogger(name), {})

    def log(
        self, level: int, msg: object, *args: object, exc_info: Any = None, extra: Mapping[str, object] | None = None,
        **_: Any,
    ) -> None:  # fmt: skip
        if not self.isEnabledFor(level):
            return
        logger = self.logger
        file, line, function, _stack = logger.findCaller(stacklevel=2)
        raised = sys.exc_info() if exc_info else None
        fields = {name: _clean(value) for name, value in (extra or {}).items()}
        arguments = tuple(_clean(argument) for argument in args)
        record = logger.makeRecord(logger.name, level, file, line, msg, arguments, raised, function, fields)
        if raised is not None and raised[1] is not None:
            record.exc_text = _indented(raised[1])  # otherwise a formatter writes the traceback, not escaped
        logger.handle(record)


def _clean(value: object) -> object:
    return value if value is None or isinstance(value, int | float) else one_line(value)


def _indented(error: BaseException) -> str:
    try:
        lines = "".join(traceback.format_exception(error, limit=50)).split("\n")
    except Exception:
        lines = [type(error).__name__]
    return "\n".join(f"    {_escaped(line)}" for line in lines if line)

"""A job's options for its execution: attempts, backoff, timeout, lease, retention.

A task declares them; `using(…)` overrides them for one job. They are written into the row at enqueue. For a job that
was enqueued by name alone, the first claim writes them. So a worker that rescues the job needs only the row.
"""

from __future__ import annotations

from typing import Any

import msgspec

from . import backoff as backoffs
from .backoff import DEFAULT_BACKOFF, Backoff
from .duration import Duration, to_seconds
from .errors import InvalidInput
from .lifecycle import FAILED, State

FOR_EVER = -1  # a value of keep_seconds
UNLIMITED = 0  # a value of max_attempts
# For jobs without a keep=. Failed jobs are kept longer, to leave time to look at them.
KEEP_SECONDS = 7 * 86_400
KEEP_FAILED_SECONDS = 30 * 86_400


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """The options as numbers, as the store keeps them."""

    max_attempts: int = 20
    lease_seconds: float = 60.0
    keep_seconds: int | None = None  # None: no keep= was given
    backoff: Backoff = DEFAULT_BACKOFF
    timeout_seconds: float | None = None
    redact: tuple[str, ...] = ()  # the arguments that are hidden

    def is_last(self, attempt: int) -> bool:
        return self.max_attempts != UNLIMITED and attempt >= self.max_attempts

    def details(self) -> dict[str, Any]:
        """The options that no query reads; they share one JSON column."""
        details = {"backoff": backoffs.to_json(self.backoff), "timeout": self.timeout_seconds}
        return details | ({"redact": list(self.redact)} if self.redact else {})

    def details_json(self) -> str | None:
        """None for the defaults, so that most rows stay small."""
        if self.timeout_seconds is None and self.backoff == DEFAULT_BACKOFF and not self.redact:
            return None
        return msgspec.json.encode(self.details()).decode()

    def to_json(self) -> dict[str, Any]:
        return {
            "max_attempts": self.max_attempts,
            "lease_seconds": self.lease_seconds,
            "keep_seconds": self.keep_seconds,
            "details": self.details_json(),
        }

    @classmethod
    def from_columns(
        cls, max_attempts: int | None, lease_seconds: float | None, keep_seconds: int | None, details: str | None
    ) -> Policy:
        """Read the options of a row. A missing or invalid value becomes the default."""
        try:
            more = msgspec.json.decode(details or "{}", type=dict[str, Any])
            timeout = more.get("timeout")
            timeout_seconds = None if timeout is None else float(timeout)
            redact = tuple(str(name) for name in more.get("redact", ()))
        except (msgspec.MsgspecError, TypeError, ValueError):
            more, timeout_seconds, redact = {}, None, ()
        return cls(
            max_attempts=DEFAULT.max_attempts if max_attempts is None else max_attempts,
            lease_seconds=DEFAULT.lease_seconds if lease_seconds is None else lease_seconds,
            keep_seconds=keep_seconds,
            backoff=backoffs.from_json(more.get("backoff")),
            timeout_seconds=timeout_seconds,
            redact=redact,
        )


DEFAULT = Policy()

# The details begin like this if the job was enqueued by name with some options. The first claim adds the task's value
# of every option that is missing, here and in the other columns.
PARTIAL = '{"partial":1'


def partial_json(given: dict[str, Any]) -> str:
    return msgspec.json.encode({"partial": 1} | given).decode()


def is_partial(details: object) -> bool:
    return isinstance(details, str) and details.startswith(PARTIAL)


def filled_in(details: str, of_task: str | None) -> str:
    """Merge the details: an option that was given at enqueue overrides the task's."""
    merged: dict[str, Any] = msgspec.json.decode(of_task or "{}") | msgspec.json.decode(details)
    del merged["partial"]
    return msgspec.json.encode(merged).decode()


def kept_seconds(keep_seconds: int | None, state: State) -> int:
    """How long a job that ended in this state is kept. 0: not at all. FOR_EVER: for ever."""
    if keep_seconds is not None:
        return keep_seconds
    return KEEP_FAILED_SECONDS if state == FAILED else KEEP_SECONDS


class Unset:
    """The value of an option that was not given, for options where None is a valid value."""

    def __repr__(self) -> str:
        return "UNSET"


UNSET = Unset()


def attempts_option(value: int | Unset | None, otherwise: int) -> int:
    """Convert `max_attempts=` to the row's value. None means: no limit."""
    if isinstance(value, Unset):
        return otherwise
    if value is None:
        return UNLIMITED
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 1_000_000:
        raise InvalidInput(f"max_attempts is a number from 1 to 1,000,000, or None for ever, not {value!r}")
    return value


def keep_option(value: Duration | Unset | None, otherwise: int | None) -> int | None:
    """Convert `keep=` to the row's value. With 0 the job is not kept; with None or "forever" it is kept for ever."""
    if isinstance(value, Unset):
        return otherwise
    if value is None or value == "forever":
        return FOR_EVER
    return int(to_seconds(value))


def seconds_option(name: str, value: Duration | Unset | None, otherwise: float | None) -> float | None:
    """A duration that must be longer than zero."""
    if isinstance(value, Unset):
        return otherwise
    if value is None:
        return None
    seconds = to_seconds(value)
    if seconds <= 0:
        raise InvalidInput(f"{name} must be longer than zero, not {value!r}")
    return seconds

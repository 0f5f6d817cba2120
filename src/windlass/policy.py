"""How a job is to be treated: attempts, backoff, timeout, lease, retention.

A task declares it; `using(…)` overrides it for one job. It is written into the row when the job is enqueued by its
task or, for one that was enqueued by name alone, when it is claimed: any rescuer can then act on the row.
"""

from __future__ import annotations

from typing import Any

import msgspec

from . import backoff as backoffs
from .backoff import DEFAULT_BACKOFF, Backoff
from .duration import Duration, to_seconds
from .errors import InvalidInput
from .lifecycle import FAILED, State

FOR_EVER = -1  # of keep_seconds
UNLIMITED = 0  # of max_attempts
KEEP_SECONDS = 7 * 86_400  # of a job whose task says nothing of it, and in the row the sign of that
KEEP_FAILED_SECONDS = 30 * 86_400  # of a failed job whose task says nothing of it: someone will want to look


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """Resolved into numbers, as the store keeps them."""

    max_attempts: int = 20
    lease_seconds: float = 60.0
    keep_seconds: int = KEEP_SECONDS
    backoff: Backoff = DEFAULT_BACKOFF
    timeout_seconds: float | None = None
    redact: tuple[str, ...] = ()  # arguments that are not shown

    def is_last(self, attempt: int) -> bool:
        return self.max_attempts != UNLIMITED and attempt >= self.max_attempts

    def details(self) -> dict[str, Any]:
        """The part that SQL never looks into."""
        details = {"backoff": backoffs.to_json(self.backoff), "timeout": self.timeout_seconds}
        return details | ({"redact": list(self.redact)} if self.redact else {})

    def details_json(self) -> str | None:
        """None for the default: then the row need not carry it."""
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
        """What the row says; the default for what it does not say, or says wrongly."""
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
            keep_seconds=DEFAULT.keep_seconds if keep_seconds is None else keep_seconds,
            backoff=backoffs.from_json(more.get("backoff")),
            timeout_seconds=timeout_seconds,
            redact=redact,
        )


DEFAULT = Policy()

# How the details begin of a job whose enqueuer gave some options and did not know its task: what they leave out, and
# what the other columns leave out, is the task's. The first claim fills it in.
PARTIAL = '{"partial":1'


def partial_json(given: dict[str, Any]) -> str:
    return msgspec.json.encode({"partial": 1} | given).decode()


def is_partial(details: object) -> bool:
    return isinstance(details, str) and details.startswith(PARTIAL)


def filled_in(details: str, of_task: str | None) -> str:
    """What was given, and of the task's what was not."""
    merged: dict[str, Any] = msgspec.json.decode(of_task or "{}") | msgspec.json.decode(details)
    del merged["partial"]
    return msgspec.json.encode(merged).decode()


def kept_seconds(keep_seconds: int, state: State) -> int:
    """How long a job that ended so stays in history."""
    return KEEP_FAILED_SECONDS if state == FAILED and keep_seconds == KEEP_SECONDS else keep_seconds


class Unset:
    """Marks an option that was not given, where None has a meaning of its own."""

    def __repr__(self) -> str:
        return "UNSET"


UNSET = Unset()


def check_connection(connection: Any) -> Any:
    """`connection=` where it was given, None where it was not. None that was given is a mistake."""
    if connection is None:
        raise InvalidInput(
            "connection=None: this is no connection, so the job would not be part of your transaction. If yours is not "
            "open yet (Django's is None until its first query), open it first. Without a transaction, leave "
            "connection= out"
        )
    return None if isinstance(connection, Unset) else connection


def attempts_option(value: int | Unset | None, otherwise: int) -> int:
    """`max_attempts=` as the row keeps it: None means for ever."""
    if isinstance(value, Unset):
        return otherwise
    if value is None:
        return UNLIMITED
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 1_000_000:
        raise InvalidInput(f"max_attempts is a number from 1 to 1,000,000, or None for ever, not {value!r}")
    return value


def keep_option(value: Duration | Unset | None, otherwise: int) -> int:
    """`keep=` as the row keeps it: 0 leaves no history, None or "forever" keeps it for ever."""
    if isinstance(value, Unset):
        return otherwise
    if value is None or value == "forever":
        return FOR_EVER
    seconds = int(to_seconds(value))
    # A second longer, since rows that say the default are those of which nothing was said.
    return seconds + 1 if seconds == KEEP_SECONDS else seconds


def seconds_option(name: str, value: Duration | Unset | None, otherwise: float | None) -> float | None:
    """A duration that must be longer than zero."""
    if isinstance(value, Unset):
        return otherwise
    if value is None:
        return None
    seconds = to_seconds(value)
    if seconds <= 0:
        raise InvalidInput(f"{name} must be longer than zero")
    return seconds

"""Which errors are worth another attempt: `@app.task(retry_on=(…), fail_on=(…))`."""

from __future__ import annotations

from typing import Any

import msgspec

from .errors import InvalidInput
from .outcome import Described, Interruption, Outcome


class RetryRules(msgspec.Struct, frozen=True):
    """By exception type. Without `retry_on` every error is retried but those of `fail_on`, which goes before it."""

    retry_on: tuple[type[BaseException], ...] | None = None
    fail_on: tuple[type[BaseException], ...] = ()

    def allow(self, error: BaseException) -> bool:
        """Whether the rules of the task allow another attempt. They do not concern `Retry` and the other outcomes of a
        handler, nor a cause outside the work (a timeout, a lost process), unless `fail_on` names it."""
        if isinstance(error, Described):
            return error.retryable
        if isinstance(error, Outcome):
            return True
        if isinstance(error, self.fail_on):
            return False
        if self.retry_on is None or isinstance(error, Interruption) or not isinstance(error, Exception):
            return True
        return isinstance(error, self.retry_on)


RETRY_ALL = RetryRules()


def retry_rules(retry_on: Any, fail_on: Any) -> RetryRules:
    if retry_on is None and fail_on is None:
        return RETRY_ALL
    rules = RetryRules(
        None if retry_on is None else _types("retry_on", retry_on),
        () if fail_on is None else _types("fail_on", fail_on),
    )
    both = set(rules.retry_on or ()) & set(rules.fail_on)
    if both:
        names = ", ".join(sorted(kind.__name__ for kind in both))
        raise InvalidInput(f"{names} is in retry_on and in fail_on: say which of the two is meant")
    return rules


def _types(name: str, given: Any) -> tuple[type[BaseException], ...]:
    kinds = tuple(given) if isinstance(given, tuple | list | set | frozenset) else (given,)
    for kind in kinds:
        if not isinstance(kind, type) or not issubclass(kind, BaseException):
            raise InvalidInput(f"{name} names exception types, as in {name}=(OSError, ValueError), not {kind!r}")
    return kinds

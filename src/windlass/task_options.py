"""The options of `@app.task(…)`, as they were given; checked when the task is declared."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from .backoff import Backoff
from .call import check_name, check_names, check_priority
from .defaults import resolve_policy
from .duration import Duration
from .errors import InvalidInput
from .policy import UNSET, Policy, Unset, seconds_option
from .retrying import RetryRules, retry_rules
from .signature import Signature
from .unique import Unique


class TaskOptions(msgspec.Struct, frozen=True, kw_only=True):
    """UNSET where the app's `defaults` hold."""

    queue: str = "default"
    priority: int = 0
    max_attempts: int | Unset | None = UNSET
    backoff: Backoff | Duration | Unset = UNSET
    timeout: Duration | None = None
    lease: Duration | Unset = UNSET
    keep: Duration | Unset | None = UNSET
    isolation: str | None = None
    redact: Sequence[str] = ()
    unique: Unique | str | Callable[..., Any] | None = None
    order_key: str | Callable[..., Any] | None = None
    labels: Mapping[str, str] | Callable[..., Any] | None = None
    retry_on: Any = None
    fail_on: Any = None

    def __post_init__(self) -> None:
        self.policy(Policy())
        self.retry_rules()
        check_name("queue", self.queue)
        check_priority(self.priority)
        check_names("redact", self.redact)
        if self.isolation not in (None, "process"):
            raise InvalidInput(f"isolation is 'process' or None, not {self.isolation!r}")

    def policy(self, default: Policy) -> Policy:
        """The default policy of the app, with the options of this task in its place."""
        policy = resolve_policy(default, self.max_attempts, self.lease, self.keep, self.backoff)
        timeout = seconds_option("timeout", self.timeout, None)
        return msgspec.structs.replace(policy, timeout_seconds=timeout, redact=tuple(self.redact))

    def retry_rules(self) -> RetryRules:
        return retry_rules(self.retry_on, self.fail_on)

    def has_derived(self) -> bool:
        return self.unique is not None or self.order_key is not None or self.labels is not None

    def check_redacted(self, signature: Signature) -> None:
        unknown = [argument for argument in self.redact if argument not in signature.names]
        if unknown:
            raise InvalidInput(f"{signature.name}: redact names {', '.join(unknown)}, which is no argument of it")

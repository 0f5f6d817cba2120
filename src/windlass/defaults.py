"""`Defaults`: the options of tasks that do not set them."""

from __future__ import annotations

import msgspec

from .backoff import Backoff, as_backoff
from .duration import Duration
from .errors import InvalidInput
from .policy import UNSET, Policy, Unset, attempts_option, keep_option, seconds_option


class Defaults(msgspec.Struct, frozen=True, kw_only=True):
    """`Windlass(…, defaults=Defaults(lease="5m", max_attempts=3))`. Where one is not given: a lease of 60 s, 20
    attempts, an exponential backoff, history for seven days."""

    lease: Duration | Unset = UNSET
    backoff: Backoff | Duration | Unset = UNSET
    max_attempts: int | Unset | None = UNSET
    keep: Duration | Unset | None = UNSET

    def __post_init__(self) -> None:
        self.policy()

    def policy(self) -> Policy:
        return resolve_policy(Policy(), self.max_attempts, self.lease, self.keep, self.backoff)


def resolve_policy(
    default: Policy,
    max_attempts: int | Unset | None,
    lease: Duration | Unset | None,
    keep: Duration | Unset | None,
    backoff: Backoff | Duration | Unset,
) -> Policy:
    """The default policy, with the given options in its place."""
    return Policy(
        max_attempts=attempts_option(max_attempts, default.max_attempts),
        lease_seconds=seconds_option("lease", lease, None) or default.lease_seconds,
        keep_seconds=keep_option(keep, default.keep_seconds),
        backoff=default.backoff if isinstance(backoff, Unset) else as_backoff(backoff),
    )


def check_defaults(defaults: object) -> Defaults:
    if defaults is None:
        return Defaults()
    if not isinstance(defaults, Defaults):
        raise InvalidInput(f"defaults is a Defaults(lease=…, backoff=…, max_attempts=…, keep=…), not {defaults!r}")
    return defaults

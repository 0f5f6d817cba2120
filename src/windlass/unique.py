"""`Unique`: one job for a key, as long as `until` says."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Literal, TypeAlias

from .duration import Duration, to_timedelta
from .errors import InvalidInput

Until: TypeAlias = Literal["claimed", "finished", "forever", "window"]
OnConflict: TypeAlias = Literal["keep", "replace", "raise"]
Scope: TypeAlias = Literal["type", "app"]


@dataclass(frozen=True, slots=True)
class Unique:
    """One job for this key (per tenant and type) until it is first claimed, until it is finished, for ever, or for a
    time. `scope="app"`: per tenant, whatever its type; the same text in both scopes is two keys.

    On a conflict `keep` returns the job that is there, `replace` renews its input and its time (for `claimed` only:
    a job that has begun cannot be rewritten), `raise` raises `Conflict`. However often it is replaced, it is due at
    the latest `max_wait` after it was first enqueued.
    """

    key: str
    until: str | Duration = "finished"
    on_conflict: OnConflict = "keep"
    max_wait: Duration | None = None
    scope: Scope = "type"

    def __post_init__(self) -> None:
        if not isinstance(self.key, str) or not self.key:
            raise InvalidInput("a unique key is a string that is not empty")
        if self.kind == "window":
            try:
                to_timedelta(self.until)
            except InvalidInput as error:
                raise InvalidInput(f"until is 'claimed', 'finished', 'forever' or a duration; {error}") from None
        if self.on_conflict not in ("keep", "replace", "raise"):
            raise InvalidInput(f"on_conflict is 'keep', 'replace' or 'raise', not {self.on_conflict!r}")
        if self.scope not in ("type", "app"):
            raise InvalidInput(f"the scope of a unique key is 'type' or 'app', not {self.scope!r}")
        if self.on_conflict == "replace" and self.until != "claimed":
            raise InvalidInput("on_conflict='replace' goes with until='claimed': what has begun cannot be rewritten")
        if self.on_conflict == "replace" and self.scope == "app":
            raise InvalidInput(
                "on_conflict='replace' goes with scope='type': the input of one task means nothing to another"
            )
        if self.window is not None and self.window <= timedelta():
            raise InvalidInput("a unique key's time window is longer than zero")
        if self.max_wait is not None:
            if self.on_conflict != "replace":
                raise InvalidInput("max_wait goes with on_conflict='replace': nothing else puts a job off")
            if to_timedelta(self.max_wait) <= timedelta():
                raise InvalidInput("max_wait must be longer than zero")

    @property
    def kind(self) -> Until:
        return self.until if self.until in ("claimed", "finished", "forever") else "window"  # type: ignore[return-value]

    @property
    def window(self) -> timedelta | None:
        return to_timedelta(self.until) if self.kind == "window" else None

    @property
    def window_seconds(self) -> float | None:
        """As a new job has it: how long the key is held or, where jobs are replaced, how long one may be put off."""
        length = self.window if self.max_wait is None else to_timedelta(self.max_wait)
        return None if length is None else length.total_seconds()


def as_unique(value: Unique | str | None) -> Unique | None:
    """A plain string is a key that is held until its job is finished."""
    if value is None or isinstance(value, Unique):
        return value
    return Unique(value)

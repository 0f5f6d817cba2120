"""The contract of hints. A hint may be lost, doubled or late; it is never wrong to ignore one.

A hint says that a read may find something new. If all hints are lost, the poll finds the work. Hints carry names, never
rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal, Protocol, TypeAlias, get_args

import msgspec

# ready: a queue has work; finished: a chain has ended; told: a worker should check a job that it runs;
# scheduled: schedules have changed
Kind: TypeAlias = Literal["ready", "finished", "told", "scheduled"]


class Hint(msgspec.Struct, frozen=True):
    kind: Kind
    name: str

    def encode(self) -> str:
        return f"{self.kind}:{self.name}"

    @classmethod
    def decode(cls, text: str) -> Hint | None:
        """None for a kind that only a newer version knows."""
        kind, _, name = text.partition(":")
        return cls(kind, name) if kind in get_args(Kind) else None  # type: ignore[arg-type]


# Called on the listener's thread. None means "anything may have changed": after a reconnect, or where the store only
# sees that something has changed.
Listener: TypeAlias = Callable[[Hint | None], None]


class Wakeup(Protocol):
    """One per store and process. It watches for hints from the first call of `listen` until some seconds after the last
    listener has left."""

    def send(self, hints: Iterable[Hint]) -> None:
        """Send hints after a commit on a connection of Windlass. Returns at once, and coalesces hints. An error of the
        sending is logged, not raised: the commit is done."""

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Call the listener for each hint from now on; call the answer to stop. Where hints come over a connection, the
        listener gets None once it is up, or at once if it is. A listener that raises does not disturb the others."""

    def flush(self, timeout: float) -> None:
        """Wait until all hints are sent: before a process ends."""

    def close(self) -> None: ...

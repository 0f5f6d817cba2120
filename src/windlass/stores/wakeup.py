"""The contract of hints: they may be lost, doubled, late; it is never wrong to ignore one.

A hint says that looking might be worth while. With all of them lost, the poll finds the work. Hints carry names,
never rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal, Protocol, TypeAlias, get_args

import msgspec

# ready: a queue has work; finished: a chain has ended; told: a worker should look at a job that it runs;
# scheduled: schedules have changed
Kind: TypeAlias = Literal["ready", "finished", "told", "scheduled"]


class Hint(msgspec.Struct, frozen=True):
    kind: Kind
    name: str

    def encode(self) -> str:
        return f"{self.kind}:{self.name}"

    @classmethod
    def decode(cls, text: str) -> Hint | None:
        """None for what a newer version may have sent."""
        kind, _, name = text.partition(":")
        return cls(kind, name) if kind in get_args(Kind) else None  # type: ignore[arg-type]


# Called on the listener's thread; None stands for "anything may have happened": after a reconnect, or where the
# store can only tell that something has changed.
Listener: TypeAlias = Callable[[Hint | None], None]


class Wakeup(Protocol):
    """One per store and process: a shared listener, started by the first who listens, stopped by the last."""

    def send(self, hints: Iterable[Hint]) -> None:
        """After a commit on a connection of ours: returns at once, coalesces what is sent meanwhile."""

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Hear of hints from now on; the answer ends it. Where they come over a line, None is told once it is up. One
        listener that raises does not hurt the others."""

    def flush(self, timeout: float) -> None:
        """Wait until what was sent has gone out: before a process ends."""

    def close(self) -> None: ...

"""What happened, as those saw it who did it: an append-only file that survives whoever writes to it.

Each line is one event, written in one piece, by the client, the handlers and the workers. A writer that is killed as
it writes can leave half a line: the kernel stops it between two pages. So each line begins with its line feed, which
keeps the half from the line of the next, and the half counts as never written. Monotonic time is the same for all
processes of one machine.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Literal, TypeAlias
from uuid import UUID

import msgspec

from windlass.lifecycle import State

Kind: TypeAlias = Literal["sent", "acknowledged", "started", "ended", "accepted", "refused", "overdue"]


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """`sent` and `acknowledged` by a client; `started` and `ended` by a handler; `accepted` and `refused` of a
    settlement, as its worker was told; `overdue` of a job whose lease was over for too long."""

    kind: Kind
    id: UUID
    attempt: int = 0
    token: UUID | None = None
    state: State | None = None
    at: float = 0.0


class Final(msgspec.Struct, frozen=True, kw_only=True):
    """A job as it is in the database when all is over."""

    id: UUID
    state: State
    attempt: int
    max_attempts: int | None
    token: UUID | None


class History:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def note(self, *events: Event) -> None:
        now = time.monotonic()
        lines = [b"\n" + msgspec.json.encode(msgspec.structs.replace(event, at=now)) for event in events]
        data = b"".join(lines)
        assert os.write(self._file, data) == len(data)

    def read(self) -> list[Event]:
        lines = self.path.read_bytes().splitlines()
        return [msgspec.json.decode(line, type=Event) for line in lines if line.endswith(b"}")]

    def close(self) -> None:
        os.close(self._file)

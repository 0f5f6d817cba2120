"""The name of a worker or claimer. It is for people: the fencing token of a lease is another value."""

from __future__ import annotations

import os
import socket
from uuid import uuid4

from .forks import PerProcess


class Identity:
    """A unique name. No other worker of this process has it, no forked child, and no later process with the same pid.

    If a name could return, the jobs of a dead worker would look as if they were still held.
    """

    def __init__(self) -> None:
        self._name = PerProcess(_make_name)

    @property
    def name(self) -> str:
        return self._name.get()


def _make_name() -> str:
    return f"{socket.gethostname()}:{os.getpid()}:{uuid4().hex[:12]}"

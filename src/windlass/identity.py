"""Who holds a lease, in words: for people to read. No fence: that is the token."""

from __future__ import annotations

import os
import socket
from uuid import uuid4


class Identity:
    """A name that nobody else has: not another worker of this process, not a child that was forked from it, not the
    process that has the same number after the next start. With a name that comes again, what a dead one left behind
    looks as if it were held."""

    def __init__(self) -> None:
        self._pid = 0
        self._name = ""

    @property
    def name(self) -> str:
        if self._pid != os.getpid():
            self._pid = os.getpid()
            self._name = f"{socket.gethostname()}:{self._pid}:{uuid4().hex[:12]}"
        return self._name

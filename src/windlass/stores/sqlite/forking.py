"""The process forks only while no thread of Windlass is inside SQLite.

SQLite's record of the file's locks is copied into the child: a lock that a thread held at that moment would seem to be
held there for ever. So a fork waits until all calls have returned, and new calls wait until the fork is done.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

LONGEST_WAIT = 30.0


class Gate:
    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._inside = 0
        self._forking = False

    @contextmanager
    def inside(self) -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(lambda: not self._forking, LONGEST_WAIT)
            self._inside += 1
        try:
            yield
        finally:
            with self._changed:
                self._inside -= 1
                self._changed.notify_all()

    def shut(self) -> None:
        with self._changed:
            self._forking = True
            self._changed.wait_for(lambda: not self._inside, LONGEST_WAIT)

    def open(self) -> None:
        with self._changed:
            self._forking = False
            self._changed.notify_all()

    def renew(self) -> None:
        """In the child, which has none of the parent's threads."""
        self.__init__()  # type: ignore[misc]


gate = Gate()
os.register_at_fork(before=gate.shut, after_in_parent=gate.open, after_in_child=gate.renew)

"""No call into SQLite is under way while the process forks.

What SQLite knows of a file's locks is copied into the child: a lock that some thread held at that moment would seem to
be held there for ever. So a fork waits until all of ours have let go, and they wait until it is done.
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
        """In the child, where none of the parent's threads are."""
        self.__init__()  # type: ignore[misc]


gate = Gate()
os.register_at_fork(before=gate.shut, after_in_parent=gate.open, after_in_child=gate.renew)

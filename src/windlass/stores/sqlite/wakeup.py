"""Hints in SQLite: sent at once within the process; other processes poll `PRAGMA data_version`."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterable

from ..wakeup import Hint, Hub, all_hubs
from .forking import gate

GLANCE_SECONDS = 0.02


class SqliteWakeup(Hub):
    def __init__(self, path: str) -> None:
        self.path = path if path == ":memory:" else os.path.abspath(path)
        super().__init__()  # from here on, other threads send hints to it

    def send(self, hints: Iterable[Hint]) -> None:
        """To every store of this process on the same file. Other processes see that the file has changed."""
        told = list(hints)
        for hub in all_hubs():
            if hub is self or (isinstance(hub, SqliteWakeup) and hub.path == self.path != ":memory:"):
                for hint in told:
                    hub.tell(hint)

    def watch(self, stopping: threading.Event) -> None:
        if self.path == ":memory:":
            stopping.wait()
            return
        with gate.inside():
            connection = sqlite3.connect(self.path, isolation_level=None)
        try:
            last = None
            while not stopping.is_set():
                with gate.inside():
                    ((version,),) = connection.execute("PRAGMA data_version").fetchall()
                if version != last:
                    last = version
                    self.tell(None)
                stopping.wait(GLANCE_SECONDS)
        finally:
            connection.close()

"""Hints by LISTEN and NOTIFY."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Any

import psycopg
from psycopg import sql

from ..hub import Hub
from ..wakeup import Hint

PROBE_SECONDS = 10.0  # a half-open connection is silent for ever: ask now and then
PAYLOAD_BYTES = 7_999


class PostgresWakeup(Hub):
    """One connection to send on, one to listen on; neither before it is needed."""

    def __init__(self, connect: Callable[[], psycopg.Connection[Any]], channel: str) -> None:
        super().__init__()
        self.connect, self.channel = connect, channel
        self._sending_on: psycopg.Connection[Any] | None = None
        self._inherited: psycopg.Connection[Any] | None = None

    def deliver(self, hints: list[Hint]) -> None:
        """After the commit, not in it: a NOTIFY in every enqueue makes committers wait for each other."""
        texts = [text for hint in hints if len((text := hint.encode()).encode()) <= PAYLOAD_BYTES]
        try:
            if self._sending_on is None or self._sending_on.closed:
                self._sending_on = self.connect()
            self._sending_on.execute(
                "SELECT pg_notify(%s, text) FROM unnest(%s::text[]) AS text", (self.channel, texts)
            )
        except Exception:
            self.hang_up()
            raise

    def hang_up(self) -> None:
        if self._sending_on is not None:
            self._sending_on.close()
            self._sending_on = None

    def _after_fork(self) -> None:
        if self._pid != os.getpid():
            self._inherited, self._sending_on = self._sending_on, None  # the parent's: neither used nor closed here
        super()._after_fork()

    def watch(self, stopping: threading.Event) -> None:
        with self.connect() as connection:
            connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(self.channel)))
            self.tell(None)
            probed = time.monotonic()
            while not stopping.is_set():
                for notice in connection.notifies(timeout=0.5, stop_after=100):
                    self.tell(Hint.decode(notice.payload))
                if time.monotonic() - probed > PROBE_SECONDS:
                    connection.execute("SELECT 1")
                    probed = time.monotonic()

"""Hints by LISTEN and NOTIFY; where a pooler does not pass them on, a regular look."""

from __future__ import annotations

import random
import threading
import time
from contextlib import closing
from typing import Any
from uuid import uuid4

import psycopg
from psycopg import sql

from ...logs import Log
from ..wakeup import Hint, SendingHub
from .connections import PostgresConnections
from .own import ask, heard_meanwhile

log = Log("windlass.wakeup")

# A half-open connection is silent for ever, so it is probed: it is found within the sum of both.
PROBE_SECONDS = 8.0
ANSWER_SECONDS = 5.0
ECHO_SECONDS = 3.0  # for a hint to come back through a pooler
LOOK_SECONDS = 5.0  # between two looks where no hints arrive
DEAF_SECONDS = 60.0  # until the next test for hints: the echo may only have been late
PAYLOAD_BYTES = 7_999


class PostgresWakeup(SendingHub):
    """One connection to send, one to listen. Each is opened when it is needed."""

    def __init__(self, connections: PostgresConnections, channel: str) -> None:
        super().__init__()
        self.connections, self.connect, self.channel = connections, connections.connect_plainly, channel
        self.probe_seconds, self.answer_seconds = PROBE_SECONDS, ANSWER_SECONDS
        self._said_deaf = False
        # One channel for all tests: where a pooler shares its connections, some of them keep listening to it.
        self._echo_channel = f"windlass_echo_{uuid4().hex}"

    def new_delivery(self) -> PostgresDelivery:
        return PostgresDelivery(self)

    def watch(self, stopping: threading.Event) -> None:
        with closing(self.connect()) as connection:
            hears = not self.connections.pooled or self._hears_itself(connection)
            if hears:
                self._listen(connection, stopping)
        if not hears:
            self._look_now_and_then(stopping)

    def _listen(self, connection: psycopg.Connection[Any], stopping: threading.Event) -> None:
        connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(self.channel)))
        self.resume()
        heard = time.monotonic()
        while not stopping.is_set():
            for notice in connection.notifies(timeout=min(0.5, self.probe_seconds), stop_after=100):
                self.tell(Hint.decode(notice.payload))
                heard = time.monotonic()
            if time.monotonic() - heard > self.probe_seconds:
                ask(connection, "SELECT 1", seconds=self.answer_seconds)
                for hint in heard_meanwhile(connection):
                    self.tell(hint)
                heard = time.monotonic()

    def _hears_itself(self, connection: psycopg.Connection[Any]) -> bool:
        """Whether this connection gets a notification of another one. A pooler does not say in which mode it works; a
        pooler that shares its connections accepts LISTEN, but no notification arrives."""
        channel, listen = self._echo_channel, sql.SQL("{} {}")
        connection.execute(listen.format(sql.SQL("LISTEN"), sql.Identifier(channel)))
        with closing(self.connect()) as other:
            ask(other, "SELECT pg_notify($1, '')", channel, seconds=self.answer_seconds)
        heard = [notice.channel for notice in connection.notifies(timeout=ECHO_SECONDS, stop_after=1)]
        connection.execute(listen.format(sql.SQL("UNLISTEN"), sql.Identifier(channel)))
        return channel in heard

    def _look_now_and_then(self, stopping: threading.Event) -> None:
        """For a while; then `watch` starts again."""
        if not self._said_deaf:
            log.warning(
                "a pooler that shares its connections stands before PostgreSQL (PgBouncer in transaction mode, or the "
                "like): no hints come through, so the worker polls; prepared statements are off"
            )
            self._said_deaf = True
        until = time.monotonic() + DEAF_SECONDS * random.uniform(0.5, 1.5)
        while time.monotonic() < until and not stopping.wait(LOOK_SECONDS * random.uniform(0.5, 1.5)):
            self.tell(None)


class PostgresDelivery:
    """The connection of the thread that sends."""

    def __init__(self, wakeup: PostgresWakeup) -> None:
        self._wakeup = wakeup
        self._connection: psycopg.Connection[Any] | None = None

    def deliver(self, hints: list[Hint]) -> None:
        """After the commit, not in the transaction: a NOTIFY in every enqueue makes commits wait for each other."""
        try:
            self._notify(hints)
        except Exception:
            if self._connection is None:
                raise  # it cannot be reached
            self.close()  # the connection may have been ended long ago, or the server was slow
            self._notify(hints)

    def _notify(self, hints: list[Hint]) -> None:
        if self._connection is None or self._connection.closed:
            self._connection = self._wakeup.connect()
        escaping = psycopg.pq.Escaping(self._connection.pgconn)
        texts = [text for hint in hints if len(text := hint.encode().encode()) <= PAYLOAD_BYTES]
        # As a command, which needs no plan; a query of pg_notify() does.
        channel = escaping.escape_identifier(self._wakeup.channel.encode())
        told = [b"NOTIFY %b, %b" % (channel, escaping.escape_literal(text)) for text in texts]
        ask(self._connection, b"; ".join(told).decode(), seconds=self._wakeup.answer_seconds)

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

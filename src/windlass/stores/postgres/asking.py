"""Queries with a time-out: psycopg itself waits for an answer for ever.

A connection can be half open: the other end is gone, but a proxy or a load balancer between still accepts data, so that
TCP notices nothing. Only a missing answer shows it.
"""

from __future__ import annotations

import select
import time
from collections.abc import Generator
from typing import Any, TypeVar

import psycopg
from psycopg.pq import ExecStatus

from ..wakeup import Hint

T = TypeVar("T")


def within(steps: Generator[Any, Any, T], seconds: float) -> Generator[Any, Any, T]:
    """psycopg's wait, broken off if nothing arrives for so long. psycopg wakes up every tenth of a second; then this
    checks the time."""
    deadline = time.monotonic() + seconds
    try:
        wanted = next(steps)
        while True:
            try:
                ready = yield wanted
            except GeneratorExit:
                steps.close()
                raise
            except BaseException as error:
                wanted = steps.throw(error)
                continue
            if ready:
                deadline = time.monotonic() + seconds
            elif time.monotonic() > deadline:
                steps.close()
                raise psycopg.errors.ConnectionTimeout(f"no answer within {seconds:g} s")
            wanted = steps.send(ready)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]


def ask(connection: psycopg.Connection[Any], statement: str, *parameters: str, seconds: float) -> str | None:
    """The first value of the answer, as text. ConnectionTimeout where it takes longer: the connection is lost then."""
    pgconn = connection.pgconn
    deadline, value = time.monotonic() + seconds, None
    if parameters:
        pgconn.send_query_params(statement.encode(), [parameter.encode() for parameter in parameters])
    else:
        pgconn.send_query(statement.encode())
    while True:
        unsent = bool(pgconn.flush())
        if not unsent and not pgconn.is_busy():
            result = pgconn.get_result()
            if result is None:
                return None if value is None else value.decode()
            if result.status not in (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK):
                raise psycopg.errors.error_from_result(result)
            value = result.get_value(0, 0) if result.ntuples else None
            continue
        if not ready(pgconn.socket, max(0.0, deadline - time.monotonic()), to_write=unsent):
            raise psycopg.errors.ConnectionTimeout(f"no answer within {seconds:g} s")
        pgconn.consume_input()


def ready(socket: int, seconds: float, *, to_write: bool = False) -> bool:
    """Whether there is something to read within so long, or room to write. With poll() where it exists, since select()
    takes no socket whose number is above a thousand."""
    if hasattr(select, "poll"):
        poll = select.poll()
        poll.register(socket, select.POLLIN | (select.POLLOUT if to_write else 0))
        return bool(poll.poll(seconds * 1000))
    readable, writable, _ = select.select([socket], [socket] if to_write else [], [], seconds)
    return bool(readable or writable)


def heard_meanwhile(connection: psycopg.Connection[Any]) -> list[Hint | None]:
    """The hints that arrived during a query."""
    hints = []
    while (notice := connection.pgconn.notifies()) is not None:
        hints.append(Hint.decode(notice.extra.decode()))
    return hints

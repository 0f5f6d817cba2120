"""A question that is answered in time, or not at all: psycopg waits for an answer for ever.

A connection can be half open: the other end is gone, but something between (a proxy, a load balancer) still takes what
is sent, so that TCP notices nothing. Only an answer that does not come shows it.
"""

from __future__ import annotations

import selectors
import time
from typing import Any

import psycopg
from psycopg.pq import ExecStatus

from ..wakeup import Hint


def ask(connection: psycopg.Connection[Any], statement: str, *parameters: str, seconds: float) -> str | None:
    """The first value of the answer, as text. ConnectionTimeout where it takes longer: the connection is lost then."""
    pgconn = connection.pgconn
    deadline, value = time.monotonic() + seconds, None
    pgconn.send_query_params(statement.encode(), [parameter.encode() for parameter in parameters])
    with selectors.DefaultSelector() as selector:
        key = selector.register(pgconn.socket, selectors.EVENT_READ)
        while True:
            unsent = pgconn.flush()
            selector.modify(key.fd, selectors.EVENT_READ | (selectors.EVENT_WRITE if unsent else 0))
            if not unsent and not pgconn.is_busy():
                result = pgconn.get_result()
                if result is None:
                    return None if value is None else value.decode()
                if result.status not in (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK):
                    raise psycopg.errors.error_from_result(result)
                value = result.get_value(0, 0) if result.ntuples else None
                continue
            if not selector.select(max(0.0, deadline - time.monotonic())):
                raise psycopg.errors.ConnectionTimeout(f"no answer within {seconds:g} s")
            pgconn.consume_input()


def heard_meanwhile(connection: psycopg.Connection[Any]) -> list[Hint | None]:
    """The hints that came in while something was asked."""
    hints = []
    while (notice := connection.pgconn.notifies()) is not None:
        hints.append(Hint.decode(notice.extra.decode()))
    return hints

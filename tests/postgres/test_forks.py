"""Two processes on one socket read each other's answers: no thread of a child gets a connection of its parent."""

from __future__ import annotations

import os
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

from tests.postgres.test_pools import connections_of
from windlass import Windlass
from windlass.stores.postgres.connections import PostgresConnections

CHILDREN, THREADS = 30, 8


def backend_of_call(connections: PostgresConnections) -> int:
    with connections.link() as link:
        return link.connection.info.backend_pid


def backend_of_block(connections: PostgresConnections) -> int:
    with connections.transaction() as connection:
        return connection.info.backend_pid


def backends(connections: PostgresConnections) -> set[int]:
    """Those of threads that need their first connection at the same moment."""
    together = threading.Barrier(THREADS)

    def ask() -> set[int]:
        together.wait(20)
        return {backend_of_call(connections), backend_of_block(connections)}

    sys.setswitchinterval(1e-6)
    with ThreadPoolExecutor(THREADS) as threads:
        return set().union(*(one.result() for one in [threads.submit(ask) for _ in range(THREADS)]))


def test_the_threads_of_a_child_have_connections_of_their_own(fresh_postgres_url: str) -> None:
    app = Windlass(fresh_postgres_url)
    connections = connections_of(app)
    ours = {backend_of_call(connections), backend_of_block(connections)}
    for _ in range(CHILDREN):
        child = os.fork()
        if child == 0:
            signal.alarm(60)
            try:
                os._exit(1 if backends(connections) & ours else 0)
            finally:
                os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert {backend_of_call(connections), backend_of_block(connections)} == ours
    app.close()

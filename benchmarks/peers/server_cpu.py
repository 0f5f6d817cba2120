"""The CPU time of a PostgreSQL server during a drain: of all its processes, and of the backends that claim and settle.

It reads /proc, so it works for a server on this machine and on Linux only.
"""

from __future__ import annotations

import re
import sys
from collections import Counter, defaultdict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self

import psutil
import psycopg

# `query` is the running statement of a backend, or its last one.
ACTIVITY = """
SELECT pid, query FROM pg_stat_activity
WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()
"""
LOOPBACK = ("127.0.0.1", "::1")

CLAIMING, SETTLING = "claiming", "settling"
# Windlass claims jobs with an UPDATE of its table and settles them with a DELETE. PostgreSQL shows the first 1,024
# bytes of a statement: enough to find the first of the two words.
CHANGE_OF_JOBS = re.compile(r"\b(UPDATE|DELETE FROM)\s+\S*windlass_jobs\b")
ROLES = {"UPDATE": CLAIMING, "DELETE FROM": SETTLING}


@dataclass(frozen=True)
class Reading:
    """Seconds of CPU, user and system, since each process started."""

    ended: float  # the postmaster, and all children that it had and that ended
    running: Mapping[int, float]  # by pid


class ServerCpu:
    """Counts from its creation on. The backend of `connection` is ours, so it does not count."""

    def __init__(self, connection: psycopg.Connection[Any], postmaster: psutil.Process) -> None:
        self._connection, self._postmaster = connection, postmaster
        self._seen: defaultdict[int, Counter[str]] = defaultdict(Counter)
        self._before = self._read()

    @classmethod
    def of(cls, connection: psycopg.Connection[Any]) -> Self | None:
        """None if the processes of the server cannot be seen from here."""
        if sys.platform != "linux" or connection.info.hostaddr not in LOOPBACK:
            return None
        with suppress(psutil.Error):
            backend = psutil.Process(connection.info.backend_pid)
            postmaster = backend.parent()
            if backend.name() == "postgres" and postmaster is not None:
                return cls(connection, postmaster)
        return None

    def sample(self) -> None:
        """Note the statement of each backend. Call it a few times during the drain."""
        for pid, query in self._connection.execute(ACTIVITY):
            if role := role_of(query):
                self._seen[pid][role] += 1

    def figures(self, jobs: int) -> dict[str, float]:
        """Microseconds of CPU for one job, since the creation."""
        after = self._read()
        roles = {pid: seen.most_common(1)[0][0] for pid, seen in self._seen.items()}
        spent = difference(self._before, after, roles)
        return {f"{name}_microseconds": seconds / jobs * 1e6 for name, seconds in spent.items()}

    def _read(self) -> Reading:
        while True:
            ended = sum(self._postmaster.cpu_times()[:4])  # two are its own times, two are those of its ended children
            running: dict[int, float] = {}
            for child in self._postmaster.children():
                with suppress(psutil.NoSuchProcess):
                    running[child.pid] = sum(child.cpu_times()[:2])
            running.pop(self._connection.info.backend_pid, None)
            # A child that ended meanwhile could be counted twice or not at all.
            if ended == sum(self._postmaster.cpu_times()[:4]):
                return Reading(ended, running)


def role_of(query: str) -> str | None:
    found = CHANGE_OF_JOBS.search(query)
    return ROLES[found[1]] if found else None


def difference(before: Reading, after: Reading, roles: Mapping[int, str]) -> dict[str, float]:
    """The seconds of the server, and of each role that was seen."""
    spent = {"server": after.ended + sum(after.running.values()) - before.ended - sum(before.running.values())}
    for pid, role in roles.items():
        if pid in after.running:
            spent[role] = spent.get(role, 0.0) + after.running[pid] - before.running.get(pid, 0.0)
    return spent

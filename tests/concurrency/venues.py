"""Where two actors meet: two connections of a store, and a way to tell that one waits for the other."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from windlass.operation import Connection, Operation, persistent
from windlass.stores.mongodb.connections import MongoConnections, SyncConnection, patient
from windlass.stores.postgres.connections import PostgresConnections
from windlass.stores.postgres.own import SyncLink
from windlass.stores.sqlite.connections import SqliteConnections
from windlass.stores.sqlite.own import OwnLink
from windlass.stores.store import Store

HELD_UP_SECONDS = 0.1  # a step of MongoDB that takes longer waits for the other actor
CONFLICTS = 3  # the server tries a write again as long as another transaction holds its document


class Venue(ABC):
    @abstractmethod
    def links(self) -> list[Connection]:
        """The two connections."""

    def driven(self, make: Callable[[], Operation[Any]]) -> Operation[Any]:
        """As the store drives it on connections of its own."""
        return persistent(make)

    @abstractmethod
    def waits(self, link: Any, since: float) -> bool:
        """Whether the step that went out then waits for a lock."""

    @abstractmethod
    def close(self) -> None: ...


class SqliteVenue(Venue):
    """Without a busy timeout: a step that would wait is refused at once, and tried again when the other is through."""

    def __init__(self, connections: SqliteConnections) -> None:
        self._links = [OwnLink(connections.open(), connections.path) for _ in range(2)]
        for link in self._links:
            link.connection.execute("PRAGMA busy_timeout = 0")

    def links(self) -> list[Connection]:
        return [*self._links]

    def waits(self, link: OwnLink, since: float) -> bool:
        return False

    def close(self) -> None:
        for link in self._links:
            link.connection.close()


class PostgresVenue(Venue):
    def __init__(self, connections: PostgresConnections) -> None:
        self._links = [SyncLink(connections.connect_plainly()) for _ in range(2)]
        self._watcher = connections.connect_plainly()

    def links(self) -> list[Connection]:
        return [*self._links]

    def waits(self, link: SyncLink, since: float) -> bool:
        """For the other actor: whoever else commits something with a NOTIFY holds a lock of the whole server."""
        pid, actors = link.connection.info.backend_pid, [one.connection.info.backend_pid for one in self._links]
        row = self._watcher.execute("SELECT pg_blocking_pids(%s) && %s::integer[]", [pid, actors]).fetchone()
        return row is not None and bool(row[0])

    def close(self) -> None:
        for connection in [self._watcher, *(link.connection for link in self._links)]:
            connection.close()


class MongoVenue(Venue):
    """A connection here lives for one operation, on a session and a client of its own."""

    def __init__(self, connections: MongoConnections) -> None:
        self._target = connections.target
        self._clients = [connections.make_client() for _ in range(2)]
        self._watcher = connections.make_client()
        self._links: list[SyncConnection] = []

    def links(self) -> list[Connection]:
        self._finish()
        self._links = [SyncConnection(self._target, client) for client in self._clients]
        return [*self._links]

    def driven(self, make: Callable[[], Operation[Any]]) -> Operation[Any]:
        return patient(make)

    def waits(self, link: SyncConnection, since: float) -> bool:
        return time.monotonic() - since > HELD_UP_SECONDS or self._has_conflict()

    def _has_conflict(self) -> bool:
        in_conflict = {"ns": {"$regex": f"^{self._target.database}\\."}, "writeConflicts": {"$gte": CONFLICTS}}
        pipeline: list[dict[str, Any]] = [{"$currentOp": {"allUsers": True}}, {"$match": in_conflict}]
        return any(True for _ in self._watcher.admin.aggregate(pipeline))

    def _finish(self) -> None:
        for link in self._links:
            link.finish()

    def close(self) -> None:
        self._finish()
        for client in [self._watcher, *self._clients]:
            client.close()


def venue_of(store: Store) -> Venue:
    match store.connections:
        case SqliteConnections() as connections:
            return SqliteVenue(connections)
        case PostgresConnections() as connections:
            return PostgresVenue(connections)
        case MongoConnections() as connections:
            return MongoVenue(connections)
    raise TypeError(f"no venue for {type(store).__name__}")

"""Hints by a change stream on the collection of hints alone, so that it reads no changes of jobs."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pymongo import MongoClient

from ..wakeup import Hint, SendingHub

if TYPE_CHECKING:
    from .connections import MongoConnections

LOOK_UP_MILLISECONDS = 1000  # for which the server holds an idle stream; then the thread checks whether to stop


def to_documents(hints: list[Hint]) -> list[dict[str, Any]]:
    """The time is that of the sender's clock; it only decides when the server deletes them."""
    now = datetime.now(UTC)
    return [{"text": hint.encode(), "sent_at": now} for hint in hints]


class MongoWakeup(SendingHub):
    def __init__(self, connections: MongoConnections, collection: str) -> None:
        super().__init__()
        self._connections, self._collection = connections, collection

    def new_delivery(self) -> MongoDelivery:
        return MongoDelivery(self._connections, self._collection)

    def watch(self, stopping: threading.Event) -> None:
        with self._connections.make_client() as client:
            collection = self._connections.database_of(client)[self._collection]
            inserts: list[dict[str, Any]] = [
                {"$match": {"operationType": "insert"}},
                {"$project": {"fullDocument.text": 1}},
            ]
            with collection.watch(inserts, max_await_time_ms=LOOK_UP_MILLISECONDS) as stream:
                self.resume()
                while not stopping.is_set():
                    change = stream.try_next()
                    if change is not None:
                        hint = Hint.decode(change["fullDocument"]["text"])
                        if hint is not None:
                            self.tell(hint)
                    elif not stream.alive:
                        raise ConnectionError("the collection of hints was dropped")


class MongoDelivery:
    """The client of the thread that sends."""

    def __init__(self, connections: MongoConnections, collection: str) -> None:
        self._connections, self._collection = connections, collection
        self._client: MongoClient[Any] | None = None

    def deliver(self, hints: list[Hint]) -> None:
        if self._client is None:
            self._client = self._connections.make_client()
        database = self._connections.database_of(self._client)
        database[self._collection].insert_many(to_documents(hints), ordered=False)

    def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()

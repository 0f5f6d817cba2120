"""MongoDB databases with the schema, used by one test after another.

To make a database takes 75 ms of the server's time; to empty it takes a tenth of that. A database rests for a while
before its next test, so that a late write of the test before meets no other test. It is dropped if a test has changed
more than the documents in it.
"""

from __future__ import annotations

from collections import deque
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

from pymongo import MongoClient
from pymongo.errors import PyMongoError

from windlass import Windlass

RESTING = 8  # databases that were given back last, and are not used again yet
MIGRATIONS = "windlass_migrations"


def drop_database(administration: MongoClient[Any], name: str) -> None:
    """To drop a database that has collections waits 100 ms for the journal; without any, 2 ms."""
    database = administration[name]
    for collection in database.list_collection_names():
        database.drop_collection(collection)
    administration.drop_database(name)


class MongoDatabases:
    def __init__(self, administration: MongoClient[Any], server: str) -> None:
        self._administration, self._server = administration, server
        self._used: deque[str] = deque()
        self._schema: object = None

    def url(self, name: str) -> str:
        return urlsplit(self._server)._replace(path=f"/{name}").geturl()

    def take(self) -> str:
        """The name of a database without a job."""
        while len(self._used) > RESTING:
            name = self._used.popleft()
            if self._cleared(name):
                return name
            drop_database(self._administration, name)
        return self._new()

    def give_back(self, name: str) -> None:
        self._used.append(name)

    def close(self) -> None:
        while self._used:
            drop_database(self._administration, self._used.popleft())

    def _new(self) -> str:
        name = f"windlass_test_{uuid4().hex}"
        app = Windlass(self.url(name))
        app.migrate()
        app.close()
        self._schema = self._schema or self._describe(name)
        return name

    def _cleared(self, name: str) -> bool:
        """Empty it. False if its schema has changed."""
        try:
            if self._describe(name) != self._schema:
                return False
        except PyMongoError:  # a view has no indexes
            return False
        database = self._administration[name]
        for collection in database.list_collection_names():
            if not collection.startswith("windlass_"):
                database.drop_collection(collection)
            elif collection != MIGRATIONS:
                database[collection].delete_many({})
        return True

    def _describe(self, name: str) -> object:
        """All but the documents of jobs. A collection without options and indexes makes no difference."""
        database = self._administration[name]
        found = {one["name"]: (one["type"], one["options"]) for one in database.list_collections()}
        indexes = {one: database[one].index_information() for one in found}
        kept = {one: (found[one], indexes[one]) for one in found if found[one][1] or len(indexes[one]) != 1}
        return kept, list(database[MIGRATIONS].find({}, {"applied_at": False}))

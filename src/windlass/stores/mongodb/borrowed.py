"""Sessions of the caller: they must be of the right kind, and of the server of the queue."""

from __future__ import annotations

from typing import Any, TypeVar
from weakref import WeakSet

from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.client_session import ClientSession

from ...errors import InvalidInput

T = TypeVar("T")
ServerIdentity = tuple[Any, ...]


class Home:
    """The server of the queue: a session of another server would take the job to where no worker looks.

    A replica set is identified by the process of its primary; a sharded cluster, which has many routers, by the time
    at which its queue was made. Ours is read again before another is refused: there may be a new primary.
    """

    def __init__(self, database: str, migrations: str, shown_url: str) -> None:
        self.database, self.migrations, self.shown_url = database, migrations, shown_url
        self._ours: ServerIdentity | None = None
        self._known: WeakSet[Any] = WeakSet()

    def __contains__(self, client: Any) -> bool:
        return client in self._known

    def look(self, client: Any) -> ServerIdentity | None:
        record = client[self.database][self.migrations].find_one({"_id": 1})
        return None if record is None else _identity(client.admin.command("hello"), record)

    async def alook(self, client: Any) -> ServerIdentity | None:
        record = await client[self.database][self.migrations].find_one({"_id": 1})
        return None if record is None else _identity(await client.admin.command("hello"), record)

    def is_at(self, there: ServerIdentity | None, client: Any) -> bool:
        """Whether it is the server where we last saw the queue."""
        if there is None:
            raise InvalidInput(
                "the server of this session has no queue: is it the one that the queue lives in, "
                f"{self.shown_url}, and was app.migrate() run there?"
            )
        if there == self._ours:
            self._known.add(client)
        return there == self._ours

    def compare(self, there: ServerIdentity | None, ours: ServerIdentity | None, client: Any) -> None:
        self._ours = ours
        if not self.is_at(there, client):
            raise InvalidInput(
                f"this session leads to another server than the one that the queue lives in, {self.shown_url}: both "
                "have a queue, and the job would go to the wrong one. Pass a session of a client of that server"
            )


def _identity(hello: dict[str, Any], record: dict[str, Any]) -> ServerIdentity:
    process = hello.get("topologyVersion", {}).get("processId") if "setName" in hello else None
    return hello.get("setName"), process, str(record.get("applied_at"))


def check_session(connection: Any, wanted: type[T]) -> T:
    """A session of the right kind. The other kind belongs to the other half of the API."""
    kinds = (ClientSession, AsyncClientSession)
    if not isinstance(connection, kinds):
        raise InvalidInput(
            f"connection= takes a pymongo session (client.start_session()) here, not {type(connection).__name__}"
        )
    if not isinstance(connection, wanted):
        twin = "the async method, aenqueue(…) and the like" if wanted is ClientSession else "the sync method"
        raise InvalidInput(
            f"{type(connection).__name__} belongs to the other kind of client: pass a {wanted.__name__} here, "
            f"or call {twin}"
        )
    if connection.has_ended:  # type: ignore[attr-defined]
        raise InvalidInput("this pymongo session has ended")
    return connection

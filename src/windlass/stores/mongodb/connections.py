"""How operations reach MongoDB: clients of ours, made when first needed, one per process and one per event loop; or
the session of a caller.

The two classes of connections differ in nothing but `await`: this is the seam where an operation meets the driver.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from bson.binary import UuidRepresentation
from bson.codec_options import CodecOptions, DatetimeConversion
from pymongo import AsyncMongoClient, MongoClient, ReadPreference
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.client_session import ClientSession
from pymongo.database import Database
from pymongo.errors import PyMongoError
from pymongo.read_concern import ReadConcern
from pymongo.uri_parser import parse_uri
from pymongo.write_concern import WriteConcern

from ...errors import InvalidInput, SchemaMismatch, StoreUnavailable
from ...operation import (
    Begin,
    Commit,
    Operation,
    Request,
    Rollback,
    Rows,
    Sleep,
    Step,
    Transient,
    adrive,
    drive,
    persistent,
)
from .base import Fresh, Hurried
from .blocks import atransaction, is_transient, transaction
from .failures import COMMIT_UNKNOWN, RAISED, STANDALONE, translate

T = TypeVar("T")

SELECTION_MILLISECONDS = 5000
COMMIT_TRIES = 3
PATIENCE = 5  # rounds of tries, about two seconds each, for a document that another transaction holds

MAJORITY, PRIMARY = WriteConcern("majority"), WriteConcern(1)
TRANSACTION = {
    "read_concern": ReadConcern("snapshot"),
    "write_concern": MAJORITY,
    "read_preference": ReadPreference.PRIMARY,
}
HANDLE: dict[str, Any] = {
    "codec_options": CodecOptions(
        tz_aware=True,
        uuid_representation=UuidRepresentation.STANDARD,
        datetime_conversion=DatetimeConversion.DATETIME_CLAMP,  # a date that Python cannot hold breaks no page
    ),
    "read_concern": ReadConcern("majority"),
    "write_concern": MAJORITY,
    "read_preference": ReadPreference.PRIMARY,
}


class Target:
    """Where to connect, by URL. Knows how to name it without its password."""

    def __init__(self, url: str, default_database: str = "windlass") -> None:
        try:
            # Read as a plain URL, for its parts alone: the other kind would ask a name server now.
            parsed = parse_uri(url.replace("mongodb+srv://", "mongodb://", 1))
        except (PyMongoError, ValueError) as error:
            raise InvalidInput(f"this MongoDB URL cannot be read: {error}") from None
        self.url = url
        self.database: str = parsed["database"] or default_database
        self.selection_given = "serverSelectionTimeoutMS" in parsed["options"]
        scheme = url.partition("://")[0]
        hosts = ",".join(host if port is None else f"{host}:{port}" for host, port in parsed["nodelist"])
        self.place = f"{scheme}://{hosts}/{self.database}"

    @property
    def options(self) -> dict[str, Any]:
        options: dict[str, Any] = {"retryWrites": True, "appname": "windlass"}
        if not self.selection_given:
            options["serverSelectionTimeoutMS"] = SELECTION_MILLISECONDS
        return options

    def check_server(self, hello: dict[str, Any]) -> None:
        """A member of a replica set, or the router of a sharded cluster, which consists of such."""
        if "setName" not in hello and hello.get("msg") != "isdbgrid":
            raise StoreUnavailable(f"MongoDB at {self.place} {STANDALONE}")


class SyncConnection:
    """Carries out steps for one operation, on a session of ours or of the caller."""

    def __init__(self, target: Target, client: MongoClient[Any], session: ClientSession | None = None) -> None:
        self._target, self._client, self._session = target, client, session
        self._database: Database[Any] = client.get_database(target.database, **HANDLE)
        self._lent = session is not None
        self._joined = session is not None and session.in_transaction

    def execute(self, step: Step) -> Rows:
        try:
            match step:
                case Request():
                    return self._call(step)
                case Begin():
                    self._session = self._session or self._client.start_session()
                    self._session.start_transaction(**TRANSACTION)  # type: ignore[arg-type]
                case Commit() if self._session is not None:
                    self._commit(self._session)
                case Rollback():
                    self._abort()
                case Sleep():
                    time.sleep(step.seconds)
                case _:
                    raise TypeError(f"MongoDB cannot carry out {step!r}")
        except RAISED as error:
            raise_translated(error, self._target.place, self._session, self._joined)
        return ()

    def _call(self, request: Request) -> Rows:
        collection = self._database.get_collection(request.collection, **concerns_of(request))
        method = getattr(collection, request.method)
        result = method(*request.arguments, session=self._session, **request.options)
        return list(result) if request.method in ("find", "aggregate") else [result]

    def _commit(self, session: ClientSession) -> None:
        for attempt in range(1, COMMIT_TRIES + 1):
            try:
                session.commit_transaction()
                return
            except PyMongoError as error:
                if not error.has_error_label(COMMIT_UNKNOWN) or attempt == COMMIT_TRIES:
                    raise

    def _abort(self) -> None:
        if self._session is not None and self._session.in_transaction:
            self._session.abort_transaction()

    def finish(self) -> None:
        if self._session is not None and not self._joined:
            self._abort()
            if not self._lent:
                self._session.end_session()


class AsyncConnection:
    """`SyncConnection`, awaited."""

    def __init__(
        self, target: Target, client: AsyncMongoClient[Any], session: AsyncClientSession | None = None
    ) -> None:
        self._target, self._client, self._session = target, client, session
        self._database: AsyncDatabase[Any] = client.get_database(target.database, **HANDLE)
        self._lent = session is not None
        self._joined = session is not None and session.in_transaction

    async def execute(self, step: Step) -> Rows:
        try:
            match step:
                case Request():
                    return await self._call(step)
                case Begin():
                    self._session = self._session or self._client.start_session()
                    await self._session.start_transaction(**TRANSACTION)  # type: ignore[arg-type]
                case Commit() if self._session is not None:
                    await self._commit(self._session)
                case Rollback():
                    await self._abort()
                case Sleep():
                    await asyncio.sleep(step.seconds)
                case _:
                    raise TypeError(f"MongoDB cannot carry out {step!r}")
        except RAISED as error:
            raise_translated(error, self._target.place, self._session, self._joined)
        return ()

    async def _call(self, request: Request) -> Rows:
        collection = self._database.get_collection(request.collection, **concerns_of(request))
        method = getattr(collection, request.method)
        result = method(*request.arguments, session=self._session, **request.options)
        if request.method == "find":
            return await result.to_list()  # type: ignore[no-any-return]
        answer = await result
        return await answer.to_list() if request.method == "aggregate" else [answer]

    async def _commit(self, session: AsyncClientSession) -> None:
        for attempt in range(1, COMMIT_TRIES + 1):
            try:
                await session.commit_transaction()
                return
            except PyMongoError as error:
                if not error.has_error_label(COMMIT_UNKNOWN) or attempt == COMMIT_TRIES:
                    raise

    async def _abort(self) -> None:
        if self._session is not None and self._session.in_transaction:
            await self._session.abort_transaction()

    async def finish(self) -> None:
        if self._session is not None and not self._joined:
            await self._abort()
            if not self._lent:
                await self._session.end_session()


def concerns_of(request: Request) -> dict[str, Any]:
    """Outside transactions; in one, its own count."""
    if isinstance(request, Fresh):
        return {"read_concern": ReadConcern("local")}
    return {"write_concern": PRIMARY if isinstance(request, Hurried) else MAJORITY}


def raise_translated(error: Exception, place: str, session: Any, joined: bool) -> None:
    """In the caller's transaction he has to try again himself: pymongo's `with_transaction` does, where it sees its
    own error. Everywhere else the error is put into our words."""
    translated = translate(error, place, in_transaction=session is not None and session.in_transaction)
    if joined and isinstance(translated, Transient):
        raise error
    raise translated from error


def patient(make: Callable[[], Operation[T]]) -> Operation[T]:
    """In a transaction, MongoDB does not wait for a document that another one holds: it refuses. So we wait."""
    for _ in range(PATIENCE - 1):
        try:
            return (yield from persistent(make))
        except Transient:
            pass
    return (yield from persistent(make))


class MongoConnections:
    is_transient = staticmethod(is_transient)

    def __init__(self, target: Target) -> None:
        self.target = target
        self.transaction, self.atransaction = partial(transaction, self), partial(atransaction, self)
        self._pid = os.getpid()
        self._client: MongoClient[Any] | None = None
        self._opening = threading.Lock()
        self._async_clients: WeakKeyDictionary[asyncio.AbstractEventLoop, AsyncMongoClient[Any]] = WeakKeyDictionary()
        self._async_opening: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()

    # Clients

    def make_client(self) -> MongoClient[Any]:
        try:
            return MongoClient(self.target.url, **self.target.options)
        except RAISED as error:
            raise translate(error, self.target.place, in_transaction=False) from error

    def database_of(self, client: MongoClient[Any]) -> Database[Any]:
        return client.get_database(self.target.database, **HANDLE)

    def client(self) -> MongoClient[Any]:
        self._after_fork()
        client = self._client
        if client is None:
            with self._opening:  # many may come at once, for the first time
                client = self._client = self._client or self._open()
        return client

    def _open(self) -> MongoClient[Any]:
        client = self.make_client()
        try:
            self.target.check_server(client.admin.command("hello"))
        except BaseException as error:
            client.close()
            if isinstance(error, RAISED):
                raise translate(error, self.target.place, in_transaction=False) from error
            raise
        return client

    async def async_client(self) -> AsyncMongoClient[Any]:
        self._after_fork()
        loop = asyncio.get_running_loop()
        client = self._async_clients.get(loop)
        if client is None:
            async with self._async_opening.setdefault(loop, asyncio.Lock()):
                client = self._async_clients.get(loop)
                if client is None:
                    for old in [old for old in self._async_clients if old.is_closed()]:
                        del self._async_clients[old]
                    client = self._async_clients[loop] = await self._aopen()
        return client

    async def _aopen(self) -> AsyncMongoClient[Any]:
        client: AsyncMongoClient[Any] | None = None
        try:
            client = AsyncMongoClient(self.target.url, **self.target.options)
            self.target.check_server(await client.admin.command("hello"))
        except BaseException as error:
            if client is not None:
                await client.close()
            if isinstance(error, RAISED):
                raise translate(error, self.target.place, in_transaction=False) from error
            raise
        return client

    def _after_fork(self) -> None:
        """A child neither uses nor closes what is its parent's."""
        if self._pid != os.getpid():
            self._pid = os.getpid()
            self._inherited = self._client, dict(self._async_clients)
            self._client, self._async_clients = None, WeakKeyDictionary()
            self._opening, self._async_opening = threading.Lock(), WeakKeyDictionary()

    # Operations

    def run(self, make: Callable[[], Operation[T]]) -> T:
        connection = SyncConnection(self.target, self.client())
        try:
            return drive(patient(make), connection)
        finally:
            connection.finish()

    async def arun(self, make: Callable[[], Operation[T]]) -> T:
        connection = AsyncConnection(self.target, await self.async_client())
        try:
            return await adrive(patient(make), connection)
        finally:
            await connection.finish()

    def run_on(self, connection: Any, make: Callable[[], Operation[T]]) -> T:
        session: ClientSession = check_session(connection, ClientSession)
        ours = SyncConnection(self.target, session.client, session)
        try:
            with at_home(self.target.place):
                return drive(make() if session.in_transaction else patient(make), ours)
        finally:
            ours.finish()

    async def arun_on(self, connection: Any, make: Callable[[], Operation[T]]) -> T:
        session: AsyncClientSession = check_session(connection, AsyncClientSession)
        ours = AsyncConnection(self.target, session.client, session)
        try:
            with at_home(self.target.place):
                return await adrive(make() if session.in_transaction else patient(make), ours)
        finally:
            await ours.finish()

    # Ending

    def close(self) -> None:
        """The event loops' clients are closed in their loops, by `aclose`."""
        self._after_fork()
        client, self._client = self._client, None
        if client is not None:
            client.close()

    async def aclose_loop(self) -> None:
        self._after_fork()
        client = self._async_clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.close()

    async def aclose(self) -> None:
        await self.aclose_loop()
        self.close()


@contextmanager
def at_home(place: str) -> Iterator[None]:
    try:
        yield
    except SchemaMismatch as error:
        raise InvalidInput(
            f"the server of this session has no queue: is it the one that the queue lives in, {place}, and was "
            "app.migrate() run there?"
        ) from error


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

"""How operations reach MongoDB: clients of ours, made when first needed, one per process and one per event loop; or
the session of a caller.

The two classes of connections differ in nothing but `await`: this is the seam where an operation meets the driver.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, TypeVar

import pymongo
from bson.binary import UuidRepresentation
from bson.codec_options import CodecOptions, DatetimeConversion
from pymongo import AsyncMongoClient, MongoClient, ReadPreference
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.client_session import ClientSession
from pymongo.database import Database
from pymongo.errors import PyMongoError
from pymongo.read_concern import ReadConcern
from pymongo.write_concern import WriteConcern

from ...forks import PerLoop, PerProcess
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
from ..store import Purpose
from .blocks import atransaction, check, is_transient, is_unwilling, transaction, was_undone
from .borrowed import Home, check_session
from .context import Brief, Fresh, Hurried
from .errors import COMMIT_UNKNOWN, RAISED, translate
from .target import Target

T = TypeVar("T")

COMMIT_TRIES = 3
CLOSING_SECONDS = 2.0  # for the message to the server that the sessions have ended
UNBOUNDED = ("create_indexes",)
PATIENCE = 5  # rounds of tries, about two seconds each, for a document that another transaction has locked

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


class SyncConnection:
    """Executes the steps of one operation, on a session of Windlass or of the caller."""

    def __init__(self, target: Target, client: MongoClient[Any], session: ClientSession | None = None) -> None:
        self._target, self._client, self._session = target, client, session
        self._answer_seconds = target.answer_seconds if session is None else None
        self._database: Database[Any] = client.get_database(target.database, **HANDLE)
        self._lent = session is not None
        self._joined = session is not None and session.in_transaction

    def execute(self, step: Step) -> Rows:
        try:
            with bounded(self._answer_seconds, step, lent=self._lent):
                return self._carry_out(step)
        except RAISED as error:
            raise_translated(error, self._target.place, self._session, self._joined)
        return ()

    def _carry_out(self, step: Step) -> Rows:
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
        return ()

    def _call(self, request: Request) -> Rows:
        database = self._database if request.database is None else self._client.get_database(request.database)
        collection = database.get_collection(request.collection, **concerns_of(request))
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
        self._answer_seconds = target.answer_seconds if session is None else None
        self._database: AsyncDatabase[Any] = client.get_database(target.database, **HANDLE)
        self._lent = session is not None
        self._joined = session is not None and session.in_transaction

    async def execute(self, step: Step) -> Rows:
        try:
            with bounded(self._answer_seconds, step, lent=self._lent):
                return await self._carry_out(step)
        except RAISED as error:
            raise_translated(error, self._target.place, self._session, self._joined)
        return ()

    async def _carry_out(self, step: Step) -> Rows:
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
        return ()

    async def _call(self, request: Request) -> Rows:
        database = self._database if request.database is None else self._client.get_database(request.database)
        collection = database.get_collection(request.collection, **concerns_of(request))
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


def bounded(seconds: float | None, step: Step, *, lent: bool) -> AbstractContextManager[Any]:
    """A time-out for the client and for the server: a half-open connection never answers. `seconds` is None where the
    URL has a time-out, or the session is `lent`."""
    if isinstance(step, Brief) and not lent:
        return pymongo.timeout(step.seconds if seconds is None else min(seconds, step.seconds))
    if seconds is None or isinstance(step, Sleep) or (isinstance(step, Request) and step.method in UNBOUNDED):
        return nullcontext()
    return pymongo.timeout(seconds)


def concerns_of(request: Request) -> dict[str, Any]:
    """Outside transactions; in one, its own count."""
    if isinstance(request, Fresh):
        return {"read_concern": ReadConcern("local")}
    return {"write_concern": PRIMARY if isinstance(request, Hurried) else MAJORITY}


def raise_translated(error: Exception, place: str, session: Any, joined: bool) -> None:
    """In a transaction of the caller, the caller has to try again: pymongo's `with_transaction` does, if it sees the
    error of pymongo. Everywhere else the error is translated."""
    translated = translate(error, place, in_transaction=session is not None and session.in_transaction)
    if joined and isinstance(translated, Transient):
        raise error
    raise translated from error


def patient(make: Callable[[], Operation[T]], purpose: Purpose = Purpose.CALLS) -> Operation[T]:
    """In a transaction, MongoDB does not wait for a document that another one holds: it refuses. So a caller waits. A
    worker does not: it has other outcomes to write, and tries this one again beside them."""
    return (yield from persistent(make, PATIENCE if purpose is Purpose.CALLS else 1))


class Clients:
    """The clients of one process: True for the worker's, False for that of all other calls."""

    def __init__(self) -> None:
        self.opened: dict[bool, MongoClient[Any]] = {}
        self.opening = threading.Lock()


class AsyncClients:
    """`Clients` of one event loop."""

    def __init__(self) -> None:
        self.opened: dict[bool, AsyncMongoClient[Any]] = {}
        self.opening = asyncio.Lock()


class MongoConnections:
    is_transient, is_unwilling = staticmethod(is_transient), staticmethod(is_unwilling)
    was_undone = staticmethod(was_undone)

    def __init__(self, target: Target, migrations: str) -> None:
        self.target = target
        self.transaction, self.atransaction = partial(transaction, self), partial(atransaction, self)
        self.home = Home(target.database, migrations, target.place)
        self._clients, self._async_clients = PerProcess(Clients), PerLoop(AsyncClients)

    # Clients

    def make_client(self) -> MongoClient[Any]:
        try:
            return MongoClient(self.target.url, **self.target.options)
        except RAISED as error:
            raise translate(error, self.target.place, in_transaction=False) from error

    def database_of(self, client: MongoClient[Any]) -> Database[Any]:
        return client.get_database(self.target.database, **HANDLE)

    # The worker has separate clients, so that calls of handlers, which may use their whole pool, take no connection
    # from it.

    def client(self, purpose: Purpose = Purpose.CALLS) -> MongoClient[Any]:
        clients, which = self._clients.get(), purpose is Purpose.WORKER
        client = clients.opened.get(which)
        if client is None:
            with clients.opening:  # many threads may need the first client at once
                client = clients.opened.get(which)
                if client is None:
                    client = clients.opened[which] = self._open()
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

    async def async_client(self, purpose: Purpose = Purpose.CALLS) -> AsyncMongoClient[Any]:
        clients, which = self._async_clients.get(), purpose is Purpose.WORKER
        client = clients.opened.get(which)
        if client is None:
            async with clients.opening:
                client = clients.opened.get(which)
                if client is None:
                    client = clients.opened[which] = await self._aopen()
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

    # Operations

    def run(self, make: Callable[[], Operation[T]], purpose: Purpose = Purpose.CALLS) -> T:
        connection = SyncConnection(self.target, self.client(purpose))
        try:
            return drive(patient(make, purpose), connection)
        finally:
            connection.finish()

    async def arun(self, make: Callable[[], Operation[T]], purpose: Purpose = Purpose.CALLS) -> T:
        connection = AsyncConnection(self.target, await self.async_client(purpose))
        try:
            return await adrive(patient(make, purpose), connection)
        finally:
            await connection.finish()

    def run_on(self, connection: Any, make: Callable[[], Operation[T]]) -> T:
        session: ClientSession = check_session(connection, ClientSession)
        check(session)
        if session.client not in self.home and session.client is not self._clients.get().opened.get(False):
            there = self.home.look(session.client)
            if not self.home.is_at(there, session.client):
                self.home.compare(there, self.home.look(self.client()), session.client)
        on = SyncConnection(self.target, session.client, session)
        try:
            return drive(make() if session.in_transaction else patient(make), on)
        finally:
            on.finish()

    async def arun_on(self, connection: Any, make: Callable[[], Operation[T]]) -> T:
        session: AsyncClientSession = check_session(connection, AsyncClientSession)
        check(session)
        ours = self._async_clients.get().opened.get(False)
        if session.client not in self.home and session.client is not ours:
            there = await self.home.alook(session.client)
            if not self.home.is_at(there, session.client):
                self.home.compare(there, await self.home.alook(await self.async_client()), session.client)
        on = AsyncConnection(self.target, session.client, session)
        try:
            return await adrive(make() if session.in_transaction else patient(make), on)
        finally:
            await on.finish()

    # Ending

    def close(self) -> None:
        """The event loops' clients are closed in their loops, by `aclose`."""
        clients = self._clients.get()
        opened, clients.opened = clients.opened, {}
        for client in opened.values():
            with pymongo.timeout(CLOSING_SECONDS):
                client.close()

    async def aclose_loop(self) -> None:
        clients = self._async_clients.get()
        opened, clients.opened = clients.opened, {}
        for client in opened.values():
            with pymongo.timeout(CLOSING_SECONDS):
                await client.close()

    async def aclose(self) -> None:
        await self.aclose_loop()
        self.close()

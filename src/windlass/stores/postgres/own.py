"""Connections of Windlass, the steps on them and their values: always READ COMMITTED, and always with a time-out.

A connection can be half open: the other end is gone, but a proxy or a load balancer between still accepts data, so that
TCP notices nothing. Only a missing answer shows it, and psycopg itself waits for an answer for ever.
"""

from __future__ import annotations

import asyncio
import select
import struct
import threading
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, TypeVar
from uuid import UUID

import psycopg
from psycopg import capabilities, pq
from psycopg.adapt import Dumper
from psycopg.pq import ExecStatus, TransactionStatus
from psycopg.rows import tuple_row
from psycopg.types.string import ByteaBinaryLoader, TextBinaryLoader

from ...errors import WindlassError
from ...operation import Begin, Commit, Copy, Current, Rollback, Rows, Sleep, Statement, Step
from ..sql.isolation import BEGIN
from ..wakeup import Hint
from .errors import READ_ONLY, translate

T = TypeVar("T")

ANSWER_SECONDS = 30.0  # for an answer: then a lost renewal can be sent again before the lease expires
COPY_SECONDS = 600.0
CANCEL_SECONDS = 3.0
WAIT_SECONDS = 0.5  # between two looks for a place
CONTROL = {Begin: BEGIN, Commit: "COMMIT", Rollback: "ROLLBACK"}


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


class OwnConnection(psycopg.Connection[Any]):
    """Gives up on an answer that does not come for `answer_seconds`."""

    answer_seconds: float | None = ANSWER_SECONDS
    unanswered = False

    def wait(self, gen: Any, *args: Any, **kwargs: Any) -> Any:
        if self.answer_seconds is None:
            return super().wait(gen, *args, **kwargs)
        try:
            return super().wait(within(gen, self.answer_seconds), *args, **kwargs)
        except psycopg.errors.ConnectionTimeout:
            self.unanswered = True
            raise


class OwnAsyncConnection(psycopg.AsyncConnection[Any]):
    """`OwnConnection`, awaited."""

    answer_seconds: float | None = ANSWER_SECONDS
    unanswered = False

    async def wait(self, gen: Any, *args: Any, **kwargs: Any) -> Any:
        if self.answer_seconds is None:
            return await super().wait(gen, *args, **kwargs)
        try:
            return await super().wait(within(gen, self.answer_seconds), *args, **kwargs)
        except psycopg.errors.ConnectionTimeout:
            self.unanswered = True
            raise


class Link:
    """The common part of both kinds. `strict`: a statement outside a transaction would run at a stricter level."""

    def __init__(self, connection: Any, answer_seconds: float, strict: bool) -> None:
        self.connection, self.answer_seconds, self.strict = connection, answer_seconds, strict
        register(connection)
        self.cursor = connection.cursor(row_factory=tuple_row, binary=True)

    def translated(self, error: psycopg.Error) -> WindlassError:
        if error.sqlstate == READ_ONLY:  # its server may be a standby now; a new connection may reach the primary
            self.connection.pgconn.finish()
        return translate(error, None)

    def hurry(self, step: Step) -> None:
        """How long its answers may take."""
        if isinstance(step, Statement) and not step.patient:
            seconds = self.answer_seconds
            self.connection.answer_seconds = seconds if step.seconds is None else min(seconds, step.seconds)
        elif isinstance(step, Copy):
            self.connection.answer_seconds = max(COPY_SECONDS, self.answer_seconds)
        elif isinstance(step, Statement):
            self.connection.answer_seconds = None

    def gave_up(self, step: Step) -> bool:
        """Whether the step rolls back a statement without an answer: the connection is closed for that."""
        lost = self.connection.pgconn.transaction_status in (TransactionStatus.ACTIVE, TransactionStatus.UNKNOWN)
        return lost and isinstance(step, Rollback)

    def begins(self, step: Statement) -> bool:
        """Whether the statement needs a transaction to run in READ COMMITTED. VACUUM runs in none."""
        return self.strict and step.alone and not step.patient and idle(self.connection)


class SyncLink(Link):
    """Steps on a psycopg connection of Windlass, which is in autocommit mode."""

    connection: OwnConnection
    cursor: psycopg.Cursor[Any]

    def __init__(
        self, connection: psycopg.Connection[Any], answer_seconds: float = ANSWER_SECONDS, strict: bool = False
    ) -> None:
        super().__init__(connection, answer_seconds, strict)

    def execute(self, step: Step) -> Rows:
        try:
            self.hurry(step)
            match step:
                case Statement(query=query, parameters=parameters):
                    statements = query.binary if parameters else query.statements
                    return (self._wrapped if self.begins(step) else self._statements)(statements, parameters)
                case Copy():
                    with self.cursor.copy(copy_statement(step)) as copy:
                        copy.set_types(list(step.types))
                        for row in step.rows:
                            copy.write_row(row)
                    return ()
                case Sleep(seconds=seconds):
                    time.sleep(seconds)
                    return ()
                case Current():
                    return ()
                case _ if self.gave_up(step):
                    return ()
                case _:
                    self.cursor.execute(CONTROL[type(step)])
                    return ()
        except psycopg.Error as error:
            raise self.translated(error) from error

    def _statements(self, statements: tuple[str, ...], parameters: Mapping[str, Any]) -> Rows:
        for statement in statements:
            self.cursor.execute(statement, parameters or None)
        return self.cursor.fetchall() if has_rows(self.cursor) else ()

    def _wrapped(self, statements: tuple[str, ...], parameters: Mapping[str, Any]) -> Rows:
        self.cursor.execute(CONTROL[Begin])
        try:
            rows = self._statements(statements, parameters)
        except psycopg.Error:
            self.cursor.execute(CONTROL[Rollback])
            raise
        self.cursor.execute(CONTROL[Commit])
        return rows


class AsyncLink(Link):
    """`SyncLink`, awaited."""

    connection: OwnAsyncConnection
    cursor: psycopg.AsyncCursor[Any]

    async def execute(self, step: Step) -> Rows:
        try:
            self.hurry(step)
            match step:
                case Statement(query=query, parameters=parameters):
                    statements = query.binary if parameters else query.statements
                    return await (self._wrapped if self.begins(step) else self._statements)(statements, parameters)
                case Copy():
                    async with self.cursor.copy(copy_statement(step)) as copy:
                        copy.set_types(list(step.types))
                        for row in step.rows:
                            await copy.write_row(row)
                    return ()
                case Sleep(seconds=seconds):
                    await asyncio.sleep(seconds)
                    return ()
                case Current():
                    return ()
                case _ if self.gave_up(step):
                    return ()
                case _:
                    await self.cursor.execute(CONTROL[type(step)])
                    return ()
        except psycopg.Error as error:
            raise self.translated(error) from error

    async def _statements(self, statements: tuple[str, ...], parameters: Mapping[str, Any]) -> Rows:
        for statement in statements:
            await self.cursor.execute(statement, parameters or None)
        return await self.cursor.fetchall() if has_rows(self.cursor) else ()

    async def _wrapped(self, statements: tuple[str, ...], parameters: Mapping[str, Any]) -> Rows:
        await self.cursor.execute(CONTROL[Begin])
        try:
            rows = await self._statements(statements, parameters)
        except psycopg.Error:
            await self.cursor.execute(CONTROL[Rollback])
            raise
        await self.cursor.execute(CONTROL[Commit])
        return rows


def has_rows(cursor: psycopg.Cursor[Any] | psycopg.AsyncCursor[Any]) -> bool:
    """Whether there are rows. `cursor.description` would describe every column for the same answer."""
    return cursor.pgresult is not None and cursor.pgresult.status == psycopg.pq.ExecStatus.TUPLES_OK


def copy_statement(step: Copy) -> str:
    return f"COPY {step.table} ({', '.join(step.columns)}) FROM STDIN (FORMAT binary)"


def usable(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> bool:
    """Idle, and without unread data: an idle connection with unread data was ended by the server."""
    return idle(connection) and not ready(connection.fileno(), 0)


@contextmanager
def place(places: threading.Semaphore) -> Iterator[None]:
    """One place, waited for in short slices. A thread that waits without end cannot be interrupted; and a thread that
    is interrupted as it is woken would lose the wake-up for the next one."""
    while not places.acquire(timeout=WAIT_SECONDS):
        pass
    try:
        yield
    finally:
        places.release()


def end(connection: OwnConnection) -> None:
    """Close it. First cancel its abandoned statement, on another connection: it may wait for a lock on the server, and
    would be executed when it gets the lock."""
    if connection.unanswered and capabilities.has_cancel_safe():
        with suppress(psycopg.Error):
            connection.cancel_safe(timeout=CANCEL_SECONDS)
    connection.close()


async def aend(connection: OwnAsyncConnection) -> None:
    if connection.unanswered and capabilities.has_cancel_safe():
        with suppress(psycopg.Error):
            await connection.cancel_safe(timeout=CANCEL_SECONDS)
    await connection.close()


def idle(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> bool:
    """Not closed, and in no transaction."""
    return bool(connection.pgconn.transaction_status == TransactionStatus.IDLE)


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


# Values

# Arrays for settlements are encoded here, since psycopg inspects each element twice before it sends it. On connections
# of the caller they are plain lists.
UUID_OID, UUIDS_OID = 2950, 2951
TEXT_OID, TEXTS_OID = 25, 1009

_HEADER = struct.Struct("!iiIii")
_LENGTH = struct.Struct("!i")
_UUID_LENGTH = _LENGTH.pack(16)
_NULL = _LENGTH.pack(-1)


class Uuids(list["UUID | None"]):
    """Ids or tokens."""


class Texts(list["str | None"]):
    """Payloads."""


class UuidsDumper(Dumper):
    format = pq.Format.BINARY
    oid = UUIDS_OID

    def dump(self, obj: Uuids) -> bytes:
        parts = [_header(UUID_OID, obj)]
        last, part = None, _NULL  # a token comes many times in a row
        for one in obj:
            if one is not last:
                last = one
                part = _NULL if one is None else _UUID_LENGTH + one.int.to_bytes(16, "big")
            parts.append(part)
        return b"".join(parts)


class TextsDumper(Dumper):
    format = pq.Format.BINARY
    oid = TEXTS_OID

    def dump(self, obj: Texts) -> bytes:
        encoded: dict[str | None, bytes] = {None: _NULL}
        parts = [_header(TEXT_OID, obj)]
        for one in obj:
            part = encoded.get(one)
            if part is None:
                raw = one.encode()  # type: ignore[union-attr]
                part = encoded[one] = _LENGTH.pack(len(raw)) + raw
            parts.append(part)
        return b"".join(parts)


def _header(element: int, values: list[Any]) -> bytes:
    if not values:
        return _HEADER.pack(0, 0, element, 0, 0)[:12]
    return _HEADER.pack(1, 1, element, len(values), 1)


def register(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> None:
    connection.adapters.register_dumper(Uuids, UuidsDumper)
    connection.adapters.register_dumper(Texts, TextsDumper)
    connection.adapters.register_loader("json", TextBinaryLoader)  # a payload is decoded by its task
    # A timestamp as its eight bytes: most are never looked at.
    connection.adapters.register_loader("timestamptz", ByteaBinaryLoader)

"""Calls after the commit of a SQLAlchemy session, the only transaction of a caller that reports its end."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

KEY = "windlass_after_commit"


def after_commit(connection: Any, tell: Callable[[], None]) -> None:
    """Call `tell` once the session's transaction has committed. Any other connection does not report its commit: then
    `tell` is never called."""
    session = _session(connection)
    if session is None or session.get_transaction() is None:
        return
    waiting = session.info.get(KEY)
    if waiting is None:
        waiting = session.info[KEY] = Waiting(session)
    waiting.add(session.get_nested_transaction() or session.get_transaction(), tell)


def _session(connection: Any) -> Any:
    orm, asynchronous = sys.modules.get("sqlalchemy.orm"), sys.modules.get("sqlalchemy.ext.asyncio")
    if asynchronous is not None and isinstance(connection, asynchronous.async_scoped_session):
        connection = connection.registry()
    if asynchronous is not None and isinstance(connection, asynchronous.AsyncSession):
        return connection.sync_session
    if orm is not None and isinstance(connection, orm.scoped_session):
        connection = connection.registry()
    return connection if orm is not None and isinstance(connection, orm.Session) else None


class Waiting:
    """The calls that wait for the commit of one session's transaction, and of the savepoints in it."""

    def __init__(self, session: Any) -> None:
        from sqlalchemy import event

        self._entries: list[tuple[Any, Callable[[], None]]] = []
        event.listen(session, "after_commit", self._committed)
        event.listen(session, "after_soft_rollback", self._rolled_back)
        event.listen(session, "after_transaction_end", self._ended)

    def add(self, transaction: Any, tell: Callable[[], None]) -> None:
        self._entries.append((transaction, tell))

    def _committed(self, session: Any) -> None:
        savepoint = session.get_nested_transaction()
        if savepoint is not None:  # released: its calls now wait for the transaction around it
            self._entries = [(savepoint.parent if one is savepoint else one, tell) for one, tell in self._entries]
            return
        entries, self._entries = self._entries, []
        for _, tell in entries:
            tell()

    def _rolled_back(self, _: Any, transaction: Any) -> None:
        self._entries = [entry for entry in self._entries if not _is_within(entry[0], transaction)]

    def _ended(self, _: Any, transaction: Any) -> None:
        if transaction.parent is None:
            self._entries = []


def _is_within(inner: Any, outer: Any) -> bool:
    while inner is not None and inner is not outer:
        inner = inner.parent
    return inner is not None

"""The one thread of a process that writes to a file.

Operations that arrive during a transaction are written together: each in a savepoint, all in one transaction. So they
share the wait for the disk, which is most of the cost of a small write. Each gets its answer after the commit.
"""

from __future__ import annotations

import re
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Self, TypeAlias, TypeVar

from ...errors import Conflict, StoreUnavailable
from ...logs import Log
from ...operation import Begin, Commit, Operation, Rollback, Rows, Sleep, Statement, Step, drive, persistent, run
from .forking import gate
from .own import OwnLink

T = TypeVar("T")
log = Log("windlass.sqlite")
Waiting: TypeAlias = tuple[Callable[[], Operation[Any]], Future[Any]]

MOST_TOGETHER = 64
READS = re.compile(r"\s*(SELECT|WITH(?!.*\b(INSERT|UPDATE|DELETE)\b))", re.DOTALL)
SAVEPOINTS = {Begin: ["SAVEPOINT one"], Commit: ["RELEASE one"], Rollback: ["ROLLBACK TO one", "RELEASE one"]}
SOLITARY = re.compile(r"\s*(VACUUM|PRAGMA)")


class Solitary(Exception):
    """An operation that cannot share a transaction: its statement allows none, or SQLite has rolled it back."""


class Writer:
    def __init__(self, open_link: Callable[[], OwnLink]) -> None:
        self._open_link = open_link
        self.link: OwnLink | None = None
        self._waiting: deque[Waiting] = deque()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="windlass-sqlite")
        self._lock = threading.Lock()  # between `submit` and `close`: all that was submitted runs before the close
        self._closed = False

    def submit(self, make: Callable[[], Operation[T]]) -> Future[T]:
        future: Future[T] = Future()
        with self._lock:
            if self._closed:
                raise StoreUnavailable("the app was closed during this call: nothing was written")
            self._waiting.append((make, future))
            try:
                self._thread.submit(self._serve)
            except RuntimeError as error:  # the interpreter is ending
                if future.cancel():  # otherwise the writer has just taken it
                    raise StoreUnavailable(f"nothing was written: {error}") from error
        return future

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
            closing = self._thread.submit(self._close_link)
        try:
            closing.result()
        finally:
            self._thread.shutdown()

    def _close_link(self) -> None:
        if self.link is not None:
            self.link.connection.close()
            self.link = None

    def _serve(self) -> None:
        """Run all waiting operations; a call after that finds none."""
        if not self._waiting:
            return
        with gate.inside():
            taken: list[Waiting] = []
            try:
                if self.link is None:
                    self.link = self._open_link()
                answers = self._together(SharedLink(self.link), taken)
            except BaseException as error:
                log.debug("together it did not go (%r): one by one", error)
                for make, future in taken or self._take():
                    self._alone(make, future)
            else:
                for future, value, failure in answers:
                    if failure is None:
                        future.set_result(value)
                    else:
                        future.set_exception(failure)

    def _take(self) -> Iterator[Waiting]:
        for _ in range(MOST_TOGETHER):
            if not self._waiting:
                return
            make, future = self._waiting.popleft()
            if future.set_running_or_notify_cancel():
                yield make, future

    def _together(self, shared: SharedLink, taken: list[Waiting]) -> list[tuple[Future[Any], Any, Exception | None]]:
        """Operations that arrive before the commit join the transaction."""
        answers: list[tuple[Future[Any], Any, Exception | None]] = []
        with shared:
            for make, future in self._take():
                taken.append((make, future))
                try:
                    answers.append((future, drive(persistent(make), shared), None))
                except Solitary:
                    raise
                except Exception as error:
                    answers.append((future, None, error))
                else:
                    shared.keep()
        return answers

    def _alone(self, make: Callable[[], Operation[T]], future: Future[T]) -> None:
        try:
            if self.link is None:
                self.link = self._open_link()
            future.set_result(run(make, self.link))
        except BaseException as error:
            future.set_exception(error)
        finally:
            if self.link is not None and self.link.connection.in_transaction:
                self.link.connection.rollback()


def read_with(link: OwnLink, make: Callable[[], Operation[T]]) -> T:
    """On a separate connection, which is closed afterwards; a write is refused."""
    try:
        with gate.inside(), SharedLink(link, may_write=False) as shared:
            return drive(persistent(make), shared)
    finally:
        link.connection.close()


class SharedLink:
    """A connection on which several operations share one transaction, which begins with the first write.

    The end of the block commits. If that fails, or SQLite has rolled back by itself (a full disk), no operation was
    done.
    """

    def __init__(self, link: OwnLink, *, may_write: bool = True) -> None:
        self.link, self.begun, self.worth, self.may_write = link, False, False, may_write

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None and self.worth:  # listeners would see an empty commit as a change of the file
                self._check()
                self.link.execute(Commit())
        finally:
            if self.link.connection.in_transaction:
                self.link.connection.rollback()

    def keep(self) -> None:
        """An operation has succeeded: if it wrote anything, there is something to commit."""
        self.worth = self.begun

    def _check(self) -> None:
        if self.begun and not self.link.connection.in_transaction:
            raise Solitary("rolled back")

    def execute(self, step: Step) -> Rows:
        self._check()
        match step:
            case Sleep():
                return self.link.execute(step)
            case Statement(query=query) if SOLITARY.match(query.named[0]):
                raise Solitary(query.name)
            case Statement(query=query) if all(READS.match(text) for text in query.named):
                return self.link.execute(step)
        if not self.may_write:
            raise Conflict(
                "a block of attempt.transaction() holds the file, and this would wait for its end: do it before or "
                "after. Inside the block you can enqueue, as a part of it, and read jobs"
            )
        if not self.begun:
            self.link.execute(Begin())
            self.begun = True
        texts = SAVEPOINTS.get(type(step))
        if texts is None:
            return self.link.execute(step)
        for text in texts:
            self.link.cursor.execute(text)
        return ()

"""Processes that kill themselves while they end a job: `python -m tests.faults.dying URL`.

Each line of input is a list of deaths, as JSON. For each of them one process claims a job, writes what it has to write
in `attempt.transaction()`, and kills itself at the point that was named. When all are gone, the line's answer says how
each has ended. The program has imported everything before it forks, and holds no connection.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any

import msgspec

from windlass import Continue, StoreUnavailable, Windlass
from windlass.attempt import Attempt
from windlass.block import BlockConflict

from ..chains.ledger import Ledger

BETWEEN = (  # the user's write and the completion
    "after the write",
    "after the outcome",
    "before the commit",  # the settlement has been written, in the same transaction
    "in the commit",
)
AROUND = ("before the block", "before the write", "after the commit", "after the block")
NEVER = "never"
LONGEST_COMMIT = 0.004  # seconds: it is hit anywhere on its way, and now and then not at all
WORK, RECEIPTS, NEXT = "work", "receipts", "next"  # queues
PATIENCE = 60.0


class Death(msgspec.Struct, frozen=True):
    point: str
    moment: float  # in the commit, from 0 to 1
    in_loop: bool  # an async block


class Dying:
    """A worker of one job."""

    def __init__(self, url: str, death: Death) -> None:
        self.app, self.ledger, self.death = Windlass(url), Ledger(url, create=False), death
        connections: Any = self.app.store.connections
        self._transaction, self._atransaction = connections.transaction, connections.atransaction
        connections.transaction, connections.atransaction = self.transaction, self.atransaction

    def reach(self, point: str) -> None:
        if self.death.point == point:
            os.kill(os.getpid(), signal.SIGKILL)

    def begin_commit(self) -> None:
        self.reach("before the commit")
        if self.death.point == "in the commit":
            threading.Thread(target=self._kill_later, daemon=True).start()

    def _kill_later(self) -> None:
        time.sleep(self.death.moment * LONGEST_COMMIT)
        os.kill(os.getpid(), signal.SIGKILL)

    def end_commit(self) -> None:
        if self.death.point == "in the commit":
            time.sleep(PATIENCE)  # it was quicker than its killer
        self.reach("after the commit")

    # The store's own blocks, with a knife at their end

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        with self._transaction() as connection:
            yield connection
            self.begin_commit()
        self.end_commit()

    @asynccontextmanager
    async def atransaction(self) -> AsyncIterator[Any]:
        async with self._atransaction() as connection:
            yield connection
            self.begin_commit()
        self.end_commit()

    # What a handler does: a row of its own, a job beside, and the chain's next job

    def run(self) -> None:
        if self.death.in_loop:
            asyncio.run(self._arun())
            return
        deadline = time.monotonic() + PATIENCE
        while not (attempts := self._claim()):
            assert time.monotonic() < deadline, "there is nothing to claim"
        (attempt,) = attempts
        self.reach("before the block")
        while True:  # as the worker does it where the database asks for another try, or is busy with the others
            try:
                self._write(attempt)
                break
            except (BlockConflict, StoreUnavailable):
                if time.monotonic() > deadline:
                    raise
        self.reach("after the block")

    def _claim(self) -> list[Attempt]:
        with suppress(StoreUnavailable):
            return self.app.claim(1, queues=[WORK])
        return []

    def _write(self, attempt: Attempt) -> None:
        job = str(attempt.job.id)
        with attempt.transaction() as connection:
            self.reach("before the write")
            self.ledger.write(connection, job)
            self.app.enqueue("receipt", {"of": job}, queue=RECEIPTS)
            self.reach("after the write")
            attempt.complete(Continue(self.app.call("next", {"of": job}, queue=NEXT)))
            self.reach("after the outcome")

    async def _arun(self) -> None:
        deadline = time.monotonic() + PATIENCE
        while not (attempts := await self._aclaim()):
            assert time.monotonic() < deadline, "there is nothing to claim"
        (attempt,) = attempts
        self.reach("before the block")
        while True:
            try:
                await self._awrite(attempt)
                break
            except (BlockConflict, StoreUnavailable):
                if time.monotonic() > deadline:
                    raise
        self.reach("after the block")

    async def _aclaim(self) -> list[Attempt]:
        with suppress(StoreUnavailable):
            return await self.app.aclaim(1, queues=[WORK])
        return []

    async def _awrite(self, attempt: Attempt) -> None:
        job = str(attempt.job.id)
        async with attempt.transaction() as connection:
            self.reach("before the write")
            await self.ledger.awrite(connection, job)
            await self.app.aenqueue("receipt", {"of": job}, queue=RECEIPTS)
            self.reach("after the write")
            attempt.complete(Continue(self.app.call("next", {"of": job}, queue=NEXT)))
            self.reach("after the outcome")


def serve(url: str) -> None:
    Windlass(url)  # connects to nothing, and loads what the store needs
    for line in sys.stdin:
        children = [_fork(url, death) for death in msgspec.json.decode(line, type=list[Death])]
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        print(msgspec.json.encode(codes).decode(), flush=True)


def _fork(url: str, death: Death) -> int:
    child = os.fork()
    if child == 0:
        try:
            Dying(url, death).run()
        except BaseException:
            sys.excepthook(*sys.exc_info())
            os._exit(1)
        os._exit(0)
    return child


if __name__ == "__main__":
    serve(sys.argv[1])

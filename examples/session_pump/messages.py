"""The messages of all sessions: what waits, what is in hand, what has failed. All of it is in the database."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from typing import Any

from windlass import Attempt, Job, Unique, Windlass
from windlass.stores.wakeup import Hint

QUEUE = "messages"
HELD_FOR = "1h"  # one process pumps a file and takes over at its start, so nobody waits for this to run out
PROCESSES_IT_MAY_KILL = 3
SAME_FOR = "7d"  # a tool use that is told again within this time is the same one


class Messages:
    """A tenant is a session, an order key makes it first in, first out, a unique key is a tool use."""

    def __init__(self, url: str | None = None, *, keep: float | str = "1d") -> None:
        self.app = Windlass(url)
        self.keep = keep

    async def enqueue(self, session: str, content: Any, tool_use_id: str | None = None) -> Job:
        """Add a message. One that was told twice is there once (`created` is False); without an id each counts."""
        return await self.app.aenqueue(
            "message",
            {"content": content},
            queue=QUEUE,
            tenant=session,
            order_key=session,
            unique=None if tool_use_id is None else Unique(tool_use_id, until=SAME_FOR),
            max_attempts=PROCESSES_IT_MAY_KILL,
            backoff=0,
            keep=self.keep,
        )

    async def claim_next(self, session: str) -> Attempt | None:
        """The oldest message of the session that waits, in hand from now on. None if none waits, or one is in hand."""
        claimed = await self.app.aclaim(1, queues=[QUEUE], order_key=session, tenant=session, lease=HELD_FOR)
        return claimed[0] if claimed else None

    def listen(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Have `wake` called, on another thread, when a message may have come; the answer ends that."""
        concerning = (None, Hint("ready", QUEUE))  # None: another process has written something
        return self.app.store.wakeup.listen(lambda hint: wake() if hint in concerning else None)

    async def depth(self, session: str) -> int:
        """How many messages of the session wait or are in hand."""
        return sum([1 for state in ("pending", "running") async for _ in self._jobs(state, session)])

    async def take_over(self) -> set[str]:
        """At the start of the process that pumps: give back what the one before had in hand when it died, and forget
        old failures. The answer: which sessions have something to do."""
        await self.app.arescue(stale_before=datetime.now(UTC))
        await self.app.arun_now_many(queue=QUEUE)  # a rescue puts what it gives back off by some seconds
        await self.forget_old()
        return {job.tenant async for job in self._jobs("pending")}

    async def forget_old(self) -> int:
        """Remove messages that failed, or were done, longer ago than they are to be kept: how many."""
        return await self.app.aprune()

    async def _jobs(self, state: str, session: str | None = None) -> AsyncIterator[Job]:
        cursor: str | None = None
        while True:
            page = await self.app.alist(state=state, queue=QUEUE, tenant=session, limit=1000, cursor=cursor)
            for job in page:
                yield job
            if (cursor := page.next_cursor) is None:
                return

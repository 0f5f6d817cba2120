"""The messages of all sessions: waiting, claimed and failed. All of them are in the database."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from typing import Any

from windlass import Attempt, Job, Unique, Windlass
from windlass.stores.wakeup import Hint

QUEUE = "messages"
HELD_FOR = "1h"  # long, because the next process rescues all claims at its start and does not wait for this
PROCESSES_IT_MAY_KILL = 3
SAME_FOR = "7d"  # a message with the same tool use id is a duplicate for this time


class Messages:
    """A session is a tenant and an order key, so its messages are first in, first out. A tool use is a unique key."""

    def __init__(self, url: str | None = None, *, keep: float | str = "1d") -> None:
        self.app = Windlass(url)
        self.keep = keep

    async def enqueue(self, session: str, content: Any, tool_use_id: str | None = None) -> Job:
        """Add a message. A duplicate returns the first one, with `created` False. Without an id there are no
        duplicates."""
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
        """Claim the oldest waiting message of the session. None if none waits, or if one is claimed already."""
        claimed = await self.app.aclaim(1, queues=[QUEUE], order_key=session, tenant=session, lease=HELD_FOR)
        return claimed[0] if claimed else None

    def listen(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake`, on another thread, when a message may have come. Return the function that stops this."""
        concerning = (None, Hint("ready", QUEUE))  # None: another process has written something
        return self.app.store.wakeup.listen(lambda hint: wake() if hint in concerning else None)

    async def depth(self, session: str) -> int:
        """The number of messages of the session that wait or are claimed."""
        return sum([1 for state in ("pending", "running") async for _ in self._jobs(state, session)])

    async def take_over(self) -> set[str]:
        """Rescue the messages that the last process had claimed when it died, and delete old failures. Call it when the
        process starts. Return the sessions that have messages."""
        await self.app.arescue(stale_before=datetime.now(UTC))
        await self.app.arun_now_many(queue=QUEUE)  # a rescue delays its jobs by some seconds
        await self.forget_old()
        return {job.tenant async for job in self._jobs("pending")}

    async def forget_old(self) -> int:
        """Delete finished messages whose retention has ended. Return their number."""
        return await self.app.aprune()

    async def _jobs(self, state: str, session: str | None = None) -> AsyncIterator[Job]:
        cursor: str | None = None
        while True:
            page = await self.app.alist(state=state, queue=QUEUE, tenant=session, limit=1000, cursor=cursor)
            for job in page:
                yield job
            if (cursor := page.next_cursor) is None:
                return

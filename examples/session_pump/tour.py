"""The tour: three sessions, a duplicate message, a message that fails and is retried, and a process that dies with a
claimed message."""

from __future__ import annotations

import asyncio

from windlass import Job

from ..tour import Check, Progress
from .messages import Messages
from .station import Station

SESSIONS = ("ada", "grace", "edsger")
PER_SESSION = 6


class Journal:
    """A handler that records its messages. It fails when it gets message 3 for the first time."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.handled: dict[str, list[int]] = {session: [] for session in SESSIONS}
        self.failed: list[Job] = []
        self.all_done = asyncio.Event()

    async def handle(self, job: Job) -> str:
        number = job.input["content"]
        if number == 3 and job.tenant not in [one.tenant for one in self.failed]:
            self.failed.append(job)
            raise RuntimeError("the model is overloaded")
        self.handled[job.tenant].append(number)
        done, everything = sum(map(len, self.handled.values())), len(SESSIONS) * PER_SESSION
        self.progress(done, everything)
        if done >= everything - len(SESSIONS):
            self.all_done.set()
        return f"{job.tenant} {number}"


async def _round(url: str, progress: Progress) -> list[Check]:
    messages, journal = Messages(url), Journal(progress)
    try:
        for number in range(PER_SESSION):
            for session in SESSIONS:
                await messages.enqueue(session, number, tool_use_id=f"use {number}")
        doubles = [await messages.enqueue(session, 0, tool_use_id="use 0") for session in SESSIONS]
        for session in SESSIONS:  # a claimer that dies: it never settles these
            await messages.claim_next(session)
        async with Station(messages, journal.handle) as station:
            await asyncio.wait_for(journal.all_done.wait(), 30)
            again = [await station.try_again(await job.arefresh()) for job in journal.failed]
            await messages.app.aresults(again, timeout=30)
        left = sum([await messages.depth(session) for session in SESSIONS])
    finally:
        await messages.app.aclose()
    in_order = [numbers for numbers in journal.handled.values() if numbers == [0, 1, 2, 4, 5, 3]]
    return [
        Check("sessions whose messages came in order, the failed one last", len(SESSIONS), len(in_order)),
        Check("messages sent twice and stored once", len(SESSIONS), sum(not job.created for job in doubles)),
        Check("messages left after a process died with claimed ones", 0, left),
    ]


def tour(url: str, progress: Progress) -> list[Check]:
    return asyncio.run(_round(url, progress))

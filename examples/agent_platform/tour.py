"""The tour: each step checks one promise by counting."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from uuid import UUID

from ..tour import Check, Progress
from .model import StandIn
from .platform import Platform
from .settings import Settings

MESSAGES, REPLICAS, SUBTASKS, LOST = 12, 3, 5, 4
REMOTES = ("tokyo", "berlin", "lima")


def tour(url: str, progress: Progress) -> list[Check]:
    """Run the tour on an empty database with this URL."""
    with tempfile.TemporaryDirectory(prefix="windlass-agents-") as folder:
        settings = Settings(url=url, records=f"{folder}/records.db", remotes=dict.fromkeys(REMOTES, "here"))
        return asyncio.run(Round(settings, progress).run())


class Round:
    """The steps of the tour. Each has its own replicas."""

    def __init__(self, settings: Settings, progress: Progress) -> None:
        self.settings, self.progress = settings, progress

    async def run(self) -> list[Check]:
        steps = (self.converse, self.orchestrate, self.dispatch, self.outlive_a_worker)
        checks = []
        for done, step in enumerate(steps):
            self.progress(done, len(steps))
            checks.append(await step())
        self.progress(len(steps), len(steps))
        return checks

    @asynccontextmanager
    async def replica(self, *, works: bool = False) -> AsyncIterator[Platform]:
        platform = Platform(self.settings, model=StandIn())

        def answer(agent: str, question: str, reply: UUID) -> None:
            """A remote agent in this process. It completes its job, as a real one does over HTTP."""
            platform.app.complete(reply, f"{agent} has thought about it")

        platform.ask = answer
        try:
            async with AsyncExitStack() as stack:
                if works:
                    await stack.enter_async_context(platform.app.worker(concurrency=4))
                yield platform
        finally:
            await platform.app.aclose()

    async def converse(self) -> Check:
        """Enqueue each message twice, as a gateway may deliver it, and then start three workers."""
        async with self.replica() as platform, AsyncExitStack() as stack:
            jobs = [
                platform.jobs.enqueue("agent-turn", {"session": "tour", "text": f"message {number}"}, f"web:{number}")
                for number in [*range(MESSAGES)] * 2
            ]
            for _ in range(REPLICAS):
                await stack.enter_async_context(self.replica(works=True))
            await platform.app.aresults(jobs, timeout=30)
            turns = len(platform.records.all("turn"))
        return Check(f"messages that came twice, answered once by {REPLICAS} workers", MESSAGES, turns)

    async def orchestrate(self) -> Check:
        async with self.replica(works=True) as platform:
            plan = platform.jobs.enqueue("orchestrator-plan", {"goal": "Plan a voyage", "subtasks": SUBTASKS})
            answer: str = await plan.aresult(timeout=30)
        return Check("subtasks of a plan, all in its answer", SUBTASKS, answer.count("part"))

    async def dispatch(self) -> Check:
        async with self.replica(works=True) as platform:
            question = {"question": "Is it raining?", "agents": REMOTES}
            answer: str = await platform.jobs.enqueue("dispatch-execute", question).aresult(timeout=30)
        heard = sum(f"{agent} has thought" in answer for agent in REMOTES)
        return Check("remote agents that called back, all in the answer", len(REMOTES), heard)

    async def outlive_a_worker(self) -> Check:
        """A worker claims some turns and dies. Five minutes later another worker runs them."""
        async with self.replica() as platform:
            app = platform.app
            for number in range(LOST):
                platform.jobs.enqueue("agent-turn", {"session": "lost", "text": f"lost message {number}"})
            app.claim(LOST, lease=None, worker="dead")
            app.store.clock.move(timedelta(minutes=5))
            app.rescue()
            app.store.clock.move(
                self.settings.retry_base + timedelta(seconds=2)
            )  # rescued jobs are spread over some seconds
            await app.arun_worker(until_idle=True)
            answered = [turn for turn in platform.records.all("turn").values() if turn["session"] == "lost"]
        return Check("turns of a worker that died, answered by another", LOST, len(answered))

"""Questions to agents elsewhere: dispatch-execute, dispatch-synthesize, and dispatch-reply for each that is awaited.

A reply is a job that no worker is to run before the deadline: the remote agent completes it, over HTTP. The one that
does not is reported missing by the worker that finds the job due.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid5

from windlass import Attempt, Continue, Fail

if TYPE_CHECKING:
    from .platform import Platform

TENANT = "remote"  # of all replies, and of the token by which they are given: it opens nothing else


def register(platform: Platform) -> None:
    app, settings = platform.app, platform.settings

    @platform.kind("dispatch-execute")
    def execute(attempt: Attempt, question: str, agents: list[str]) -> Continue:
        """Ask each agent. Run again after a failure, it finds the replies that it has made, and asks who is silent."""
        unknown = sorted(set(agents) - settings.remotes.keys())
        if unknown:
            raise Fail(f"there is no remote agent {', '.join(unknown)}")
        awaited = reply.using(delay=settings.remote_deadline, tenant=TENANT)
        asked = {agent: awaited.using(id=uuid5(attempt.job.id, agent)).call(question, agent) for agent in agents}
        replies = app.enqueue_many(asked.values())
        for agent, job in zip(asked, replies, strict=True):
            if not job.finished:
                platform.ask(agent, question, job.id)
        return Continue(synthesize.using(after=replies).call(question))

    @platform.kind("dispatch-reply")
    def reply(question: str, agent: str) -> str:
        return f"{agent} has not answered"

    @platform.kind("dispatch-synthesize")
    def synthesize(attempt: Attempt, question: str) -> str:
        return platform.model.summarise(question, attempt.blockers)

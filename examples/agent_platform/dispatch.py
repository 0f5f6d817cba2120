"""Questions to remote agents: dispatch-execute, dispatch-synthesize, and one dispatch-reply for each agent.

A reply is a job that is due at the deadline. The remote agent completes it over HTTP before that. If it does not, a
worker runs the job, and reports that the agent has not answered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid5

from windlass import Attempt, Continue, Fail

if TYPE_CHECKING:
    from .platform import Platform

TENANT = "remote"  # the tenant of all replies; the remote agents' token gives access to this tenant only


def register(platform: Platform) -> None:
    app, settings = platform.app, platform.settings

    @platform.kind("dispatch-execute")
    def execute(attempt: Attempt, question: str, agents: list[str]) -> Continue:
        """Ask each agent. After a retry it finds the existing replies, and asks only the agents that are silent."""
        unknown = sorted(set(agents) - settings.remotes.keys())
        if unknown:
            raise Fail(f"there is no remote agent {', '.join(unknown)}; add it to AGENTS_REMOTES")
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

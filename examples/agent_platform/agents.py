"""The agent's jobs: agent-turn answers a message, trigger-fire starts a turn, analytics-write counts events."""

from __future__ import annotations

from typing import TYPE_CHECKING

from windlass import Attempt, Continue

from .model import Dispatch, Remember

if TYPE_CHECKING:
    from .platform import Platform


def register(platform: Platform) -> None:
    app, jobs, records = platform.app, platform.jobs, platform.records

    @platform.kind("agent-turn")
    def agent_turn(attempt: Attempt, session: str, text: str, channel: str = "web") -> None:
        """Answer a message and run the model's tools. Their jobs are enqueued if, and only if, the turn completes."""
        reply, id = platform.model.answer(text), attempt.job.id
        attempt.log(f"attempt {attempt.number} answers session {session} on {channel}")
        records.put("turn", id, {"session": session, "text": text, "reply": reply.text, "channel": channel})
        with attempt.transaction():
            for number, tool in enumerate(reply.tools):
                match tool:
                    case Remember():
                        records.put("memory", f"{id} {number}", tool.text)
                    case Dispatch():
                        jobs.enqueue("dispatch-execute", {"question": tool.question, "agents": tool.agents})
                jobs.enqueue("analytics-write", {"event": f"tool {type(tool).__name__.lower()}", "session": session})
            attempt.complete(reply.text)

    @platform.kind("trigger-fire")
    def trigger_fire(trigger: str, text: str) -> Continue:
        """A schedule or a webhook sends the agent a message. The turn continues the same chain."""
        return Continue(agent_turn.call(session=f"trigger {trigger}", text=text, channel="trigger"))

    @platform.kind("analytics-write")
    def analytics_write(attempt: Attempt, event: str, session: str) -> None:
        records.put("event", attempt.job.id, {"event": event, "session": session})

    digest = trigger_fire.call("daily digest", "what happened since yesterday?")
    app.schedule("0 7 * * *", digest, name="daily digest", catch_up="skip")

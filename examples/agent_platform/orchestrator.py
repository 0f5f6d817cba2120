"""Split a goal into subtasks and join their results: orchestrator-plan, orchestrator-subtask, orchestrator-synthesize.

The plan's chain continues with the synthesis, which waits for all subtasks. So the result of the plan is the answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from windlass import Attempt, Continue

if TYPE_CHECKING:
    from .platform import Platform


def register(platform: Platform) -> None:
    app, model = platform.app, platform.model

    @platform.kind("orchestrator-plan")
    def plan(attempt: Attempt, goal: str, subtasks: int) -> None:
        """One transaction creates the subtasks and the synthesis, and completes the plan."""
        steps = model.plan(goal, subtasks)
        with attempt.transaction():
            parts = app.enqueue_many([subtask.call(step) for step in steps])
            attempt.complete(Continue(synthesize.using(after=parts).call(goal)))

    @platform.kind("orchestrator-subtask")
    def subtask(step: str) -> str:
        return model.answer(step).text

    @platform.kind("orchestrator-synthesize")
    def synthesize(attempt: Attempt, goal: str) -> str:
        return model.summarise(goal, attempt.blockers)

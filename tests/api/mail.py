"""A module whose tasks know no app."""

from __future__ import annotations

from windlass import Attempt, Tasks

tasks = Tasks()


@tasks.task(queue="mail", max_attempts=5)
async def send(user_id: int) -> str:
    return f"sent to {user_id}"


urgent = send.using(priority=50)


@tasks.task(isolation="process")
def heavy(n: int, attempt: Attempt) -> str:
    """With the app that included it, which a child process has to find."""
    return f"{n} of {attempt.app.url.partition(':')[0]}: {', '.join(attempt.app.tasks)}"

"""The plainest worker: one job after another, in the caller's event loop."""

from __future__ import annotations

import asyncio
import inspect
import random
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING
from uuid import uuid4

from ..attempt import Attempt, _current
from ..outcome import decide, ended_after
from ..stores.store import ClaimRequest

if TYPE_CHECKING:
    from ..app import Windlass

POLL_SECONDS = 1.0


async def work(app: Windlass, *, queues: Sequence[str] | None, until_idle: bool) -> int:
    """Claim, run, settle; how many jobs were run."""
    ran = 0
    while True:
        attempt = await _next(app, queues)
        if attempt is not None:
            await _settle(attempt, await _execute(attempt))
            ran += 1
        elif until_idle:
            return ran
        else:
            await asyncio.sleep(POLL_SECONDS)


async def _next(app: Windlass, queues: Sequence[str] | None) -> Attempt | None:
    names = queues if queues is not None else await app.arun_operation(app.store.live_queues)
    for queue in names:
        request = ClaimRequest(
            queue=queue,
            limit=1,
            token=uuid4(),
            worker=app.worker_name,
            types=sorted(app.tasks),
            policies={name: task.policy for name, task in app.tasks.items()},
        )
        for job in await app.arun_operation(lambda request=request: app.store.claim(request)):  # type: ignore[misc]
            return Attempt(app, app.bind(job), request.token)
    return None


async def _execute(attempt: Attempt) -> object:
    """What came of the handler: JSON text, or what it raised."""
    task = attempt.app.tasks[attempt.job.type]
    token = _current.set(attempt)
    try:
        arguments = task.signature.decode_arguments(attempt.job.input_json)
        if task.signature.injected_name:
            arguments[task.signature.injected_name] = attempt
        if inspect.iscoroutinefunction(task.function):
            result = await task.function(**arguments)
        else:
            result = await asyncio.to_thread(task.function, **arguments)
        return task.signature.encode_result(result)
    except Exception as error:
        return error
    finally:
        _current.reset(token)


async def _settle(attempt: Attempt, result: object) -> None:
    began = attempt.job.claimed_at
    ended = ended_after(attempt.job, timedelta(seconds=time.time() - began.timestamp())) if began else None
    settlement = decide(attempt.job, attempt.token, result, random=random.random, ended_at=ended)
    await attempt.app.arun_operation(lambda: attempt.app.store.settle([settlement]))

"""The queues of a worker: which of them have jobs, when the next job is due, where the worker can run none."""

from __future__ import annotations

import time
from collections.abc import Mapping

from ..app import Queues
from ..call import check_name
from ..errors import InvalidInput
from ..logs import Log
from .bell import Reasons
from .claimer import Claimer

log = Log("windlass.worker")

FORGET_SECONDS = 60.0  # after which a queue without jobs is forgotten, if the worker serves all queues


class QueueLooks:
    """Looks at the queues, for the pump."""

    def __init__(self, claimer: Claimer) -> None:
        self.claimer, self.name = claimer, claimer.name
        self.app, self.cursors = claimer.app, claimer.cursors
        self._told_stuck: set[str] = set()

    async def admit(self) -> bool:
        """Admit jobs with blockers or an order key, also those that were enqueued in your transactions: whether locks
        of other transactions keep some out."""
        try:
            while (admitted := await self.app.arun_for_worker(self.app._admit)).jobs:
                self.claimer.wake(Reasons(hinted=frozenset(admitted.queues)))
        except Exception as error:  # jobs that are not admitted block no others
            log.warning("arriving jobs could not be admitted, which is tried again: %s", error)
            return True
        return admitted.left > 0

    async def find_queues(self) -> list[str]:
        """The queues in which jobs wait. The worker forgets the others after a while."""
        names = await self.app.arun_for_worker(self.app.store.live_queues)
        now = time.monotonic()
        for queue in names:
            self.claimer.cursor(queue).seen_at = now
        for cursor in list(self.cursors.values()):
            if now - cursor.seen_at > FORGET_SECONDS:
                del self.cursors[cursor.queue]
        return names

    async def next_due(self) -> float | None:
        """Seconds until the first job of a known queue is due; None if no job waits there."""
        queues = [cursor.queue for cursor in self.cursors.values() if not cursor.stuck]
        return await self.app.arun_for_worker(lambda: self.app.store.next_due(queues))

    async def find_stuck(self, *, again: bool) -> bool:
        """Find the queues in which this worker cannot run any job that is due. It leaves them alone until a hint, or a
        poll: each claim would read all of their jobs. `again`: only those that were stuck at the last look."""
        queues = [cursor.queue for cursor in self.cursors.values() if cursor.stuck or not again]
        if not queues:
            return False
        types = self.app.task_names
        stuck = set(await self.app.arun_for_worker(lambda: self.app.store.stuck(queues, types)))
        for queue in queues:
            cursor = self.claimer.cursor(queue)
            cursor.stuck = queue in stuck and not cursor.hinted  # by a hint that came meanwhile
            if cursor.stuck and queue not in self._told_stuck:
                self._told_stuck.add(queue)
                log.warning(
                    "jobs are due in the queue %r, and this worker can run none of them: it has no tasks of their "
                    "names, or the queue is paused (app.explain(id) says which)", queue, extra={"worker": self.name},
                )  # fmt: skip
        return bool(stuck)


def queue_limits(queues: Queues | None) -> dict[str, int | None] | None:
    """The queues that a worker serves, each with its limit; None for all."""
    if queues is None:
        return None
    if isinstance(queues, str):
        raise InvalidInput("queues is a list of names, or a mapping of names to limits")
    limits = dict(queues) if isinstance(queues, Mapping) else dict.fromkeys(queues)
    for name, limit in limits.items():
        check_name("queue", name)
        if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 1):
            raise InvalidInput(f"queue {name}: a limit is a number from 1 on, not {limit!r}")
    return limits

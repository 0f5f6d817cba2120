"""Actions on jobs and queues in SQL: cancel, retry, run now, pause, resume."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from uuid import UUID

from ...lifecycle import CANCELLED, FINISHED, Event, allows
from ...operation import Current, Operation
from ...outcome import Settlement
from ..store import Change
from .attempts import Settlements
from .dialect import Dialect, Part
from .status import JobStatus, Statuses

TRIES = 3  # a job can change its state between two statements


class Actions(Part):
    """Operations `cancel`, `retry`, `run_now`, `pause`, `resume`."""

    def __init__(self, dialect: Dialect, statuses: Statuses, settlements: Settlements) -> None:
        super().__init__(dialect)
        self.statuses, self.settlements = statuses, settlements

    def cancel(self, ids: Sequence[UUID]) -> Operation[list[Change]]:
        yield Current("others may wait for a job that is cancelled, or for their turn behind it")
        done: dict[UUID, Change] = {}
        left = sorted(set(ids))
        for _ in range(TRIES):
            waiting = [Settlement(id=id, token=None, state=CANCELLED) for id in left]
            refused = yield from self.settlements.end(waiting, alone=False)
            done |= {id: Change(id, True, CANCELLED) for id in left if id not in refused}
            rows = yield self.statement("request_cancel", ids=self.array(sorted(refused)))
            done |= {(id := self.rows.to_uuid(row[0])): Change(id, True, "running", row[1]) for row in rows}
            left = [id for id in left if id not in done]
            statuses = yield from self.statuses.read(left)
            if all(status.state in FINISHED for status in statuses.values()):
                break
        return [done.get(id) or _unchanged(id, statuses.get(id)) for id in ids]

    def retry(self, ids: Sequence[UUID]) -> Operation[list[Change]]:
        return (yield from self._act("bring back", ids, self._retry))

    def _retry(self, ids: Sequence[UUID]) -> Operation[dict[UUID, Change]]:
        yield Current("a job that is retried waits again for others, and others for it")
        done = yield from self.dialect.retry(ids)
        # In a separate statement: it sees the jobs that have begun to wait for one of these meanwhile.
        back = [id for id, change in done.items() if change.done]
        if back:
            yield self.statement("link_next", ids=self.array(back))
            # A job that still has to wait for others is blocked again.
            statuses = yield from self.statuses.read(back)
            done |= {id: Change(id, True, statuses[id].state, statuses[id].queue) for id in back}
        return done

    def run_now(self, ids: Sequence[UUID]) -> Operation[list[Change]]:
        return (yield from self._act("run now", ids, self._make_due))

    def _make_due(self, ids: Sequence[UUID]) -> Operation[dict[UUID, Change]]:
        rows = yield self.statement("run_now", ids=self.array(ids))
        return {(id := self.rows.to_uuid(row[0])): Change(id, True, row[2], row[1]) for row in rows}

    def _act(
        self, event: Event, ids: Sequence[UUID], act: Callable[[Sequence[UUID]], Operation[dict[UUID, Change]]]
    ) -> Operation[list[Change]]:
        done: dict[UUID, Change] = {}
        statuses: dict[UUID, JobStatus] = {}
        left = sorted(set(ids))
        for _ in range(TRIES):
            done |= yield from act(left)
            left = [id for id in left if id not in done]
            if not left:
                break
            statuses |= yield from self.statuses.read(left)
            left = [id for id in left if id in statuses and allows(event, statuses[id].state)]
            if not left:
                break
        return [done.get(id) or _unchanged(id, statuses.get(id)) for id in ids]

    def pause(self, queue: str) -> Operation[None]:
        yield self.statement("pause", alone=True, queue=queue)

    def resume(self, queue: str) -> Operation[None]:
        yield self.statement("resume", alone=True, queue=queue)


def _unchanged(id: UUID, status: JobStatus | None) -> Change:
    return Change(id, False, status.state if status else None)

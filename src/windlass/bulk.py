"""Act on many jobs: filter by filter, chunk by chunk, each chunk in a transaction of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from .actions import OPERATIONS, send_hints
from .engine import Engine
from .errors import InvalidInput
from .lifecycle import LIVE, Event
from .operation import Flow, Operation, transact
from .reads import make_filter
from .stores.store import Bookmark, Filter

CHUNK = 500  # jobs in one transaction
FILTERS = ("state", "type", "queue", "tenant", "chain", "since", "unique")


def cancel_many(engine: Engine, /, **filter: Any) -> Flow[int]:
    """Cancel all that match (state, type, queue, tenant, chain, since; or all=True): how many."""
    return (yield from _act_on_all(engine, "cancel", _filters(filter, sorted(LIVE))))


def retry_many(engine: Engine, /, **filter: Any) -> Flow[int]:
    """Retry all that match; the failed ones if no state is given."""
    return (yield from _act_on_all(engine, "bring back", _filters(filter, ["failed"])))


def run_now_many(engine: Engine, /, **filter: Any) -> Flow[int]:
    """Run all that match without waiting for their time."""
    return (yield from _act_on_all(engine, "run now", _filters(filter, ["pending"])))


def delete_many(engine: Engine, /, **filter: Any) -> Flow[int]:
    """Delete all that match, do not run, and have no dependents but each other."""
    return (yield from _act_on_all(engine, "delete", _filters(filter, [None])))


class Chunk(NamedTuple):
    """The result of one transaction."""

    done: int
    waited_for: int  # refused, since others wait for them
    before: Bookmark | None  # the next chunk begins here; None at the end


class Sweep:
    """The progress of an action on many.

    A job may stand in the list before its dependents, in an earlier chunk: it can go after they have gone. So the
    action passes through the list again as long as each pass leaves fewer such jobs behind. New jobs cannot prolong it.
    """

    def __init__(self, filters: Sequence[Filter]) -> None:
        self.filters = list(filters)
        self.before: Bookmark | None = None
        self.done = 0
        self._done_before = self._waited_for = 0
        self._left_behind: int | None = None  # by the pass before

    def took(self, chunk: Chunk) -> None:
        self.done += chunk.done
        self._waited_for += chunk.waited_for
        self.before = chunk.before
        if chunk.before is None:
            self._end_pass()

    def _end_pass(self) -> None:
        left, earlier = self._waited_for, self._left_behind
        if left and self.done > self._done_before and (earlier is None or left < earlier):
            self._left_behind = left
        else:
            self.filters.pop(0)
            self._left_behind = None
        self._done_before, self._waited_for = self.done, 0


def _act_on_all(engine: Engine, event: Event, filters: Sequence[Filter]) -> Flow[int]:
    sweep = Sweep(filters)
    while sweep.filters:
        sweep.took((yield from transact(lambda: _act_on_chunk(engine, event, sweep))))
    return sweep.done


def _act_on_chunk(engine: Engine, event: Event, sweep: Sweep) -> Operation[Chunk]:
    jobs = yield from engine.store.list(sweep.filters[0], CHUNK, sweep.before)
    changes = yield from OPERATIONS[event](engine.store)(sorted(job.id for job in jobs))
    yield from send_hints(engine, event, changes)
    waited_for = sum(not change.done and change.reason is not None for change in changes)
    last = Bookmark.of(jobs[-1]) if len(jobs) == CHUNK else None
    return Chunk(sum(change.done for change in changes), waited_for, last)


def _filters(given: dict[str, Any], states: Sequence[str | None]) -> list[Filter]:
    """One filter for each state. An action on all jobs has to be asked for, by all=True."""
    unknown = given.keys() - {*FILTERS, "all"}
    if unknown:
        raise InvalidInput(f"unknown filter {', '.join(sorted(unknown))}; there are: {', '.join(FILTERS)}, all")
    every = given.get("all", False)
    if not isinstance(every, bool):
        raise InvalidInput(f"all is True or False, not {every!r}")
    is_filtered = any(given.get(name) is not None for name in FILTERS)
    if every and is_filtered:
        raise InvalidInput("give a filter or all=True, not both")
    if not every and not is_filtered:
        raise InvalidInput("no filter is given: to act on all jobs, say all=True")
    chosen = [given["state"]] if given.get("state") is not None else states
    return [make_filter(state, *(given.get(name) for name in FILTERS[1:])) for state in chosen]
